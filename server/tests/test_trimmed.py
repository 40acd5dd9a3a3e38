import io

from rich.table import Table

from anabranch_server.trimmed import trimmed_console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table() -> Table:
    made = Table(box=None)
    made.add_column("name")
    made.add_column("note")
    made.add_row("a", "much to say")
    made.add_row("b", "")
    return made


def test_no_line_ends_with_blanks_where_nobody_watches() -> None:
    out = io.StringIO()
    with trimmed_console(out) as console:
        console.print(table(), style="bold")

    lines = out.getvalue().splitlines()

    assert [line.split() for line in lines] == [["name", "note"], ["a", "much", "to", "say"], ["b"]]
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in out.getvalue()


def test_a_terminal_is_printed_to_as_well() -> None:
    out = Terminal()
    with trimmed_console(out) as console:
        console.print("one")

    assert out.getvalue() == "one\n"
