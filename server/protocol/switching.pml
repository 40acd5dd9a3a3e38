/* How all workers of a server come to serve the same state, whatever dies meanwhile.
 *
 * Two workers, one supervisor, one model with one shared word. Checked by scripts/check_spin; the
 * decisions are those of anabranch_server/supervisor/agreement.py, the messages those of
 * anabranch_server/processes/messages.py, the page that explains both is docs/processes.md.
 *
 * The supervisor may die between any two of its steps. The launcher replaces it by one that knows
 * nothing but the shared word and what is durable; workers serve on meanwhile. A worker may die at
 * any moment and comes back with nothing; the second one may be fresh at the start, so that the only
 * one who has what is current may die. Nobody knows then what the word stands for, and requests are
 * refused until something else is current.
 *
 * An epoch is a number, a content is what was to be served under it. Every switch has a content of
 * its own, so that two states under one epoch are seen as what they are.
 *
 * Properties, as assertions:
 *   MIXTURE    a request reads one content from its first look to its last, and it is the one that
 *              was published under its epoch
 *   BACKWARDS  a request never has an older epoch than one that ended before it began, in the same
 *              worker
 *   FREED      nothing that a request reads is freed: not by its worker, not by the supervisor's
 *              floor, which follows the leases
 *   DECIDED    what a request reads was decided durably
 *   QUORUM     when an epoch becomes current, every worker whose doors are open has prepared it
 *   STRANGER   no request reads what the supervisor does not know of
 *
 * Each of these leaves a rule out and must give a counterexample:
 *   EARLY_RELEASE      a worker releases old epochs without asking whether a request reads one
 *   LATE_REFERENCE     a request loads the word first and takes its reference later
 *   JOIN_UNASKED       a worker that joins in mid-switch opens its doors without having prepared
 *   HASTY_SUCCESSOR    a new supervisor does not wait for the hellos of workers that serve
 *   HIDDEN_BUILD       a worker goes on with its builds, and says hello without them
 *   CURRENT_BUILD      as that, but only with a build of what is current: where all who had that
 *                      died, it becomes ready behind the back of a supervisor that begins anew
 *   OLD_CHANNEL        a worker goes on reading what the dead supervisor sent
 *   FORGOTTEN_LEASE    a new supervisor takes old epochs for released
 *   PUBLISHED_FIRST    the word is stored before the decision is durable
 */
#define WORKERS 2
#ifndef EPOCHS
#define EPOCHS 3            /* 1 is current at the start, so there are two switches */
#endif
#ifndef WORKER_DEATHS
#define WORKER_DEATHS 1
#endif
#ifndef SUPERVISOR_DEATHS
#define SUPERVISOR_DEATHS 1
#endif

mtype = { Prepare, Abort, Joined };           /* supervisor -> worker: epoch, content */
mtype = { Hello, Ack, Released };  /* worker -> supervisor: worker, life, epoch; of a hello, the
                                      oldest and newest, and whether the current one is there */

chan to_worker[WORKERS] = [6] of { mtype, byte, byte };
chan to_supervisor = [4] of { mtype, byte, bit, byte, byte, bit };

/* One step of the supervisor sends a worker four messages at most. */
#define ROOM (len(to_worker[0]) <= 2 && len(to_worker[1]) <= 2)

/* --- shared memory and disk ------------------------------------------------------------------- */

byte word = 1;              /* the current epoch; only the supervisor stores it */
byte published[EPOCHS + 1]; /* content that was published under each epoch */
byte durable[EPOCHS + 1];   /* content that was decided for each epoch */

/* --- supervisor; all of it but `contents` is lost with the process ---------------------------- */

mtype = { Gathering, Idle, Preparing, Agreed, Decided };
mtype phase = Idle;
bit supervisor;             /* which one it is: changes with each start */
byte contents = 1;          /* contents that were ever to be served: the world's, not its own */
byte last_epoch = 1;        /* newest epoch that it gave out, or heard of */
byte epoch, content;        /* of the switch at work */
bit awaited[WORKERS];       /* a worker that served before this supervisor: its hello must come */
bit greeted[WORKERS];       /* hello came; a member of every quorum from now on */
bit has_current[WORKERS];
bit has_acked[WORKERS];     /* the switch at work */
bit joined[WORKERS];        /* it was told to open its doors, or had them open */
bit known = 1;              /* what the word stands for: some worker had it when this one began */
byte lease[WORKERS];        /* oldest epoch that it may read */
byte newest[WORKERS];       /* while gathering: newest epoch that it has */

/* --- workers ---------------------------------------------------------------------------------- */

bit alive[WORKERS];
bit life[WORKERS];          /* incarnation: a message of an earlier one counts for nothing */
bit doors[WORKERS];         /* requests come in */
bit peer[WORKERS];          /* the supervisor whose channel it reads */
byte held[WORKERS * (EPOCHS + 1)]; /* content that is ready under an epoch; 0 is none */
byte building[WORKERS], built[WORKERS]; /* epoch and content of the build at work; 0 is none */
byte reading[WORKERS];      /* epoch that a request refers to; 0 is none */
byte finished[WORKERS];     /* newest epoch of a request that ended */

byte worker_deaths = WORKER_DEATHS, supervisor_deaths = SUPERVISOR_DEATHS;

#ifdef EARLY_RELEASE
#define MAY_RELEASE(w) (1)
#else
#define MAY_RELEASE(w) (reading[w] == 0 || reading[w] >= word)
#endif
#ifdef HASTY_SUCCESSOR
#define MAY_BEGIN (1)
#else
#define MAY_BEGIN (!awaited[0] && !awaited[1])
#endif

#define HELD(w, e) held[(w) * (EPOCHS + 1) + (e)]
#define PEERS(w) (peer[w] == supervisor)

/* What is sent to a supervisor that is dead is lost. */
inline tell(kind, w, one, other, has) {
  if
  :: PEERS(w) -> to_supervisor!kind, w, life[w], one, other, has
  :: else
  fi
}

inline oldest_held(w, result) {
  result = 1;
  do
  :: result <= EPOCHS && HELD(w, result) == 0 -> result++
  :: else -> break
  od;
  if :: result > EPOCHS -> result = 0 :: else fi
}

inline newest_held(w, result) {
  result = EPOCHS;
  do
  :: result > 0 && HELD(w, result) == 0 -> result--
  :: else -> break
  od;
}

/* --- worker: control -------------------------------------------------------------------------- */

proctype Control(byte w) {
  byte e, c, i;
  do
  /* A message. Builds follow each other; an abort also stops the one at work. */
  :: atomic {
       alive[w] && to_worker[w]?[Prepare] && building[w] == 0 && nfull(to_supervisor) ->
       to_worker[w]?Prepare, e, c;
       building[w] = e; built[w] = c; e = 0; c = 0
     }
  :: atomic {
       alive[w] && to_worker[w]?[Abort] ->
       to_worker[w]?Abort, e, c;
       HELD(w, e) = 0;
       if :: building[w] == e -> building[w] = 0; built[w] = 0 :: else fi;
       e = 0; c = 0
     }
  :: atomic { alive[w] && to_worker[w]?[Joined] -> to_worker[w]?Joined, _, _; doors[w] = 1 }

  /* A build is done. */
  :: atomic {
       alive[w] && building[w] != 0 && nfull(to_supervisor) ->
       HELD(w, building[w]) = built[w];
       tell(Ack, w, building[w], 0, 0);
       building[w] = 0; built[w] = 0
     }

  /* Nothing reads what is older than the current epoch any more. */
  :: atomic {
       alive[w] && HELD(w, word) != 0 && nfull(to_supervisor) && MAY_RELEASE(w) ->
       oldest_held(w, e);
       if
       :: e < word ->
          do :: e < word -> HELD(w, e) = 0; e++ :: else -> break od;
          tell(Released, w, word, 0, 0)
       :: else
       fi;
       e = 0
     }

  /* The launcher says that there is another supervisor. */
  :: atomic {
       alive[w] && !PEERS(w) && nfull(to_supervisor) ->
#ifndef OLD_CHANNEL
       do :: nempty(to_worker[w]) -> to_worker[w]?_, _, _ :: empty(to_worker[w]) -> break od;
#endif
#ifdef CURRENT_BUILD
       if :: building[w] != word -> building[w] = 0; built[w] = 0 :: else fi;
#else
#ifndef HIDDEN_BUILD
       building[w] = 0; built[w] = 0;
#endif
#endif
       peer[w] = supervisor;
       oldest_held(w, e); newest_held(w, c);
       tell(Hello, w, e, c, HELD(w, word) != 0);
       e = 0; c = 0
     }

  /* Death, and what the launcher does about it. */
  :: atomic {
       alive[w] && worker_deaths > 0 ->
       worker_deaths--;
       alive[w] = 0; doors[w] = 0; reading[w] = 0; finished[w] = 0;
       building[w] = 0; built[w] = 0;
       i = 1;
       do :: i <= EPOCHS -> HELD(w, i) = 0; i++ :: else -> break od;
       i = 0;
       do :: nempty(to_worker[w]) -> to_worker[w]?_, _, _ :: empty(to_worker[w]) -> break od
     }
  :: atomic {
       !alive[w] && !greeted[w] && !awaited[w] && nfull(to_supervisor) ->
       alive[w] = 1; life[w] = 1 - life[w]; peer[w] = supervisor;
       tell(Hello, w, 0, 0, 0)
     }
  od
}

/* --- worker: requests ------------------------------------------------------------------------- */

/* What a request finds under the epoch that it refers to. */
inline look(w) {
  assert(known);                                                               /* STRANGER */
  assert(HELD(w, reading[w]) != 0);                                            /* FREED */
  assert(HELD(w, reading[w]) == published[reading[w]]);                        /* MIXTURE */
  assert(durable[reading[w]] == published[reading[w]]);                        /* DECIDED */
  assert(reading[w] >= finished[w])                                            /* BACKWARDS */
}

proctype Request(byte w) {
#ifdef LATE_REFERENCE
  byte loaded;
#endif
  do
#ifndef LATE_REFERENCE
  :: atomic { /* The word is loaded and the reference taken under one lock. */
       doors[w] && reading[w] == 0 && (known || HELD(w, word) != 0) ->
       reading[w] = word;
       look(w)
     }
#else
  :: atomic { doors[w] && reading[w] == 0 && loaded == 0 -> loaded = word }
  :: atomic { !alive[w] -> loaded = 0 }
  :: atomic { alive[w] && loaded != 0 -> reading[w] = loaded; loaded = 0; look(w) }
#endif
  :: atomic {
       reading[w] != 0 ->
       look(w);
       finished[w] = reading[w];
       reading[w] = 0
     }
  od
}

/* --- supervisor ------------------------------------------------------------------------------- */

inline ask(w, what, one, two) {
  if
  :: alive[w] -> to_worker[w]!what, one, two
  :: else
  fi
}

/* A worker that said hello is asked to prepare what is current, and what is about to be. */
inline greet(w, oldest, upto, has) {
  greeted[w] = 1; has_current[w] = has; joined[w] = 0;
#ifdef FORGOTTEN_LEASE
  lease[w] = word;
#else
  lease[w] = (oldest != 0 && oldest < word -> oldest : word);
#endif
  i = word + 1;
  do :: i <= upto -> ask(w, Abort, i, 0); i++ :: else -> break od;
  i = 0;
  if :: !has && known -> ask(w, Prepare, word, published[word]) :: else fi;
#ifdef JOIN_UNASKED
  has_acked[w] = 1
#else
  has_acked[w] = 0;
  if :: phase == Preparing -> ask(w, Prepare, epoch, content) :: else fi
#endif
}

/* A worker that has what is current, and what is decided already, opens its doors. */
inline let_in(w) {
  if
  :: greeted[w] && !joined[w] && (has_current[w] || !known) &&
     ((phase != Agreed && phase != Decided) || has_acked[w]) ->
     joined[w] = 1;
     if :: !doors[w] -> ask(w, Joined, 0, 0) :: else fi
  :: else
  fi
}

inline lose(w) {
  greeted[w] = 0; has_current[w] = 0; has_acked[w] = 0; joined[w] = 0; lease[w] = 0;
  if :: phase != Gathering -> free_for_all() :: else fi
}

inline store_word() {
  assert(epoch > word);                                                        /* BACKWARDS */
  assert(!doors[0] || HELD(0, epoch) == content);                              /* QUORUM */
  assert(!doors[1] || HELD(1, epoch) == content);                              /* QUORUM */
  published[epoch] = content; word = epoch; known = 1;
  free_for_all()
}

/* What a worker has of the epoch that has just become current. */
inline settle(w) {
  has_current[w] = has_acked[w];
  if
  :: greeted[w] && !has_current[w] -> ask(w, Prepare, word, published[word])
  :: else
  fi
}

/* What is older than every lease and than the current epoch is freed for all workers, such as the
 * files that they built from. */
#define MAY_READ(w) (reading[w] == 0 || FLOOR <= reading[w])
#define FLOOR LEAST(word, LEAST(LEASE(0), LEASE(1)))
#define LEAST(a, b) ((a) < (b) -> (a) : (b))
#define LEASE(w) (greeted[w] -> lease[w] : word)
inline free_for_all() {
  assert(MAY_READ(0) && MAY_READ(1))                                           /* FREED */
}

inline clear_switch() {
  epoch = 0; content = 0; has_acked[0] = 0; has_acked[1] = 0; phase = Idle
}

proctype Supervisor() {
  mtype kind;
  byte w, one, other, i;
  bit of_life, has;
  do
  /* A message of a worker. */
  :: atomic {
       nempty(to_supervisor) && ROOM ->
       to_supervisor?kind, w, of_life, one, other, has;
       if
       :: of_life != life[w] || !alive[w]
       :: else ->
          if
          :: kind == Hello && phase == Gathering ->
             awaited[w] = 0; greeted[w] = 1; has_current[w] = has;
             lease[w] = one; newest[w] = other;
             if :: other > last_epoch -> last_epoch = other :: else fi
          :: kind == Hello && phase != Gathering ->
             greet(w, one, other, has); let_in(w)
          :: kind == Ack && greeted[w] && phase != Gathering ->
             if
             :: one == epoch && phase == Preparing -> has_acked[w] = 1
             :: one == word -> has_current[w] = 1
             :: else  /* of a switch that was given up */
             fi;
             let_in(w)
          :: kind == Released && one > lease[w] ->
             lease[w] = one;
             if :: phase != Gathering -> free_for_all() :: else fi
          :: else
          fi
       fi;
       kind = 0; w = 0; one = 0; other = 0; of_life = 0; has = 0
     }

  /* A death is certain: the pidfd says so. */
  :: atomic { awaited[0] && !alive[0] -> awaited[0] = 0 }
  :: atomic { awaited[1] && !alive[1] -> awaited[1] = 0 }
  :: atomic { greeted[0] && !alive[0] -> lose(0) }
  :: atomic { greeted[1] && !alive[1] -> lose(1) }

  /* A new supervisor knows all workers that served before it: it begins. */
  :: atomic {
       phase == Gathering && ROOM && MAY_BEGIN ->
       phase = Idle;
       known = has_current[0] || has_current[1];
       if
       :: greeted[0] ->
          one = lease[0]; has = has_current[0];
          greet(0, one, newest[0], has); let_in(0)
       :: else
       fi;
       if
       :: greeted[1] ->
          one = lease[1]; has = has_current[1];
          greet(1, one, newest[1], has); let_in(1)
       :: else
       fi;
       free_for_all();
       one = 0; has = 0; newest[0] = 0; newest[1] = 0
     }

  /* A switch, step by step. */
  :: atomic {
       phase == Idle && last_epoch < EPOCHS && contents < EPOCHS &&
       (greeted[0] || greeted[1]) && ROOM ->
       last_epoch++; contents++;
       epoch = last_epoch; content = contents; phase = Preparing;
       if :: greeted[0] -> ask(0, Prepare, epoch, content) :: else fi;
       if :: greeted[1] -> ask(1, Prepare, epoch, content) :: else fi
     }
  :: atomic {
       phase == Preparing && ROOM ->  /* a refusal, a timeout, a caller who left */
       if :: greeted[0] -> ask(0, Abort, epoch, 0) :: else fi;
       if :: greeted[1] -> ask(1, Abort, epoch, 0) :: else fi;
       clear_switch()
     }
  :: atomic {
       phase == Preparing && (greeted[0] || greeted[1]) &&
       (!greeted[0] || has_acked[0]) && (!greeted[1] || has_acked[1]) -> phase = Agreed
     }
#ifdef PUBLISHED_FIRST
  :: atomic { phase == Agreed && ROOM -> phase = Decided; store_word() }
  :: atomic { phase == Decided -> durable[epoch] = content; clear_switch() }
#else
  :: atomic { phase == Agreed -> durable[epoch] = content; phase = Decided }
  :: atomic {
       phase == Decided && ROOM ->
       store_word(); settle(0); settle(1); clear_switch(); let_in(0); let_in(1)
     }
#endif

  /* Death. What workers sent is lost, and so is everything that it knew. */
  :: atomic {
       supervisor_deaths > 0 ->
       supervisor_deaths--;
       supervisor = 1 - supervisor;
       do
       :: nempty(to_supervisor) -> to_supervisor?_, _, _, _, _, _
       :: empty(to_supervisor) -> break
       od;
       clear_switch();
       phase = Gathering; last_epoch = word;
       greeted[0] = 0; greeted[1] = 0; has_current[0] = 0; has_current[1] = 0;
       joined[0] = 0; joined[1] = 0;
       lease[0] = 0; lease[1] = 0; newest[0] = 0; newest[1] = 0;
       awaited[0] = alive[0]; awaited[1] = alive[1]
     }
  od
}

init {
  atomic {
    published[1] = 1; durable[1] = 1;
    HELD(0, 1) = 1; alive[0] = 1; alive[1] = 1;
    doors[0] = 1; greeted[0] = 1; has_current[0] = 1; joined[0] = 1; lease[0] = 1;
    if
    :: HELD(1, 1) = 1; doors[1] = 1; greeted[1] = 1; has_current[1] = 1; joined[1] = 1; lease[1] = 1
    :: to_supervisor!Hello, 1, 0, 0, 0, 0
    fi;
    run Supervisor();
    run Control(0); run Control(1);
    run Request(0); run Request(1)
  }
}
