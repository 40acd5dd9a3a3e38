"""How the status page looks, light and dark, wide and narrow."""

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root {
  color-scheme: light dark;
  --good: light-dark(#1a7f37, #4ac26b);
  --bad: light-dark(#b42318, #ff7b72);
  --busy: light-dark(#9a6700, #d29922);
  --quiet: light-dark(#59636e, #9198a1);
  --line: light-dark(#d9dee3, #30363d);
  --card: light-dark(#fff, #161b22);
}
* { box-sizing: border-box; }
body {
  font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 1.5rem auto; padding: 0 1rem;
  background: light-dark(#f6f8fa, #0d1117);
}
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .3rem 0; }
section.card {
  background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem 1rem; margin: .6rem 0;
}
section.card > header { margin-bottom: .3rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
tbody tr { border-top: 1px solid var(--line); }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; }
th { font-weight: 500; color: var(--quiet); white-space: nowrap; font-size: .9em; }
td { overflow-wrap: anywhere; }
progress { width: 10rem; max-width: 100%; vertical-align: middle; }
.mark { border: 1px solid currentColor; border-radius: 1rem; padding: 0 .55rem; font-size: .85em; }
.good { color: var(--good); }
.bad { color: var(--bad); }
.busy { color: var(--busy); }
.quiet { color: var(--quiet); }
.error { overflow-wrap: anywhere; white-space: pre-wrap; }
@media (max-width: 40rem) {
  thead { display: none; }
  tbody tr { display: block; padding: .4rem 0; }
  td { display: flex; gap: .8rem; padding: .1rem 0; }
  td:empty { display: none; }
  td::before { content: attr(data-head); flex: 0 0 6.5rem; color: var(--quiet); }
}
"""
