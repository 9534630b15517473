import type { CrashRow, Proof } from './crash-table.ts';

const proofs =
  (file: string) =>
  (...names: readonly string[]): Proof[] =>
    names.map((name) => ({ file, name }));
const embedded = proofs('test/crash/agents.test.ts');
const parts = proofs('test/api/agent-server/agent-parts.stack.ts');
const servers = proofs('test/crash/agent-servers.test.ts');
const crons = proofs('test/crash/agent-crons.test.ts');

/** Runs of graphs: their rows in Postgres are the truth, leases say who may write. */
export const agentRows: readonly CrashRow[] = [
  {
    where: 'A process that runs graphs',
    what: 'Is killed in the middle of runs',
    happens:
      'Its runs begin another attempt, from the last state that was stored. Readers stay: the event `metadata` says that a new ' +
      'attempt begins. One that was where it is to stop, in a graph within another too, stops there. A run whose own code ends its ' +
      'process gets an error instead.',
    proofs: embedded(
      'kill -9 of a worker process: its runs start another attempt and end, and readers see both attempts',
      'kill -9 while a subgraph is at its interrupt: the next attempt stops there, too',
    ),
  },
  {
    where: 'A process that runs graphs',
    what: 'Is killed by the same run each time',
    happens:
      'That run is given up with an error after three attempts; the last one is alone in its process, so that those beside it end well.',
    proofs: embedded(
      'a run whose process is killed each time fails after its third attempt; its reader sees each attempt, and concurrent runs succeed',
    ),
  },
  {
    where: 'runlake all',
    what: 'Dies in the middle of runs',
    happens:
      'Its runs are taken up again once their lease has run out, in their order; a cancel that was asked for holds. No thread stays ' +
      'busy. Readers of resumable runs come back with `Last-Event-ID` and get each event of an attempt once. Each run counts once.',
    proofs: embedded(
      'kill -9 in the middle of runs: they are requeued in order, an earlier cancel holds, and each counts once',
    ),
  },
  {
    where: 'runlake all',
    what: 'Dies between the end of a run and its trace',
    happens: 'The next start tells the end to readers and writes the trace, which counts once.',
    proofs: embedded(
      'kill -9 between the end of a run and its trace: the next start publishes the end and counts the run once',
    ),
  },
  {
    where: 'Embedded Postgres',
    what: 'Dies in the middle of runs',
    happens: 'It is started again; runs end as they would have, in the same attempt or in another one.',
    proofs: embedded('kill -9 of Postgres in the middle of runs: runs end normally, in the same or a later attempt'),
  },
  {
    where: 'Embedded ClickHouse',
    what: 'Dies in the middle of runs',
    happens:
      'It is started again; runs go on meanwhile, and those that are resumable end once it has their events. Readers get all of them, ' +
      'later ones too; traces are there once.',
    proofs: embedded(
      'kill -9 of ClickHouse in the middle of runs: runs end normally, readers get all events, each trace is stored once',
    ),
  },
  {
    where: 'agents',
    what: 'One of several processes dies in the middle of runs',
    happens:
      'Another one takes its runs up once their lease has run out. Readers of that one stay; readers of the dead one resume there. ' +
      'What it had not given to the log yet is seen by nobody, also where the state behind it is stored.',
    proofs: servers(
      'kill -9 of one agent server: another requeues its runs, and readers there follow both attempts to the end',
    ),
  },
  {
    where: 'agents --front-only, agents --work-only',
    what: 'Dies in the middle of runs',
    happens:
      'Runs notice nothing of a front that dies; their readers come back at another one. Runs of a process that works begin another ' +
      'attempt in another one; readers stay.',
    proofs: parts(
      'a front that is killed costs runs nothing, and their readers come back at another one',
      'a run of a worker that is killed goes on in another',
    ),
  },
  {
    where: 'Kafka',
    what: 'Dies in the middle of runs, and is started again',
    happens:
      'What runs stream waits for it in bounded memory, and runs with it. Nothing that was streamed is missing or doubled.',
    proofs: servers('kill -9 of Kafka in the middle of runs: no streamed event is missing after the restart'),
  },
  {
    where: 'ClickHouse',
    what: 'Dies in the middle of runs, and is started again',
    happens:
      'Runs go on and end; their readers notice nothing, and who comes back gets what is in memory of the process that is asked. What ' +
      'was streamed and traced meanwhile is stored once it is back, once.',
    proofs: servers(
      'kill -9 of ClickHouse in the middle of runs: runs and readers continue, and events are stored once after the restart',
    ),
  },
  {
    where: 'api',
    what: 'Dies in the middle of runs',
    happens: 'Runs and their readers notice nothing. Their traces are there once when it is back.',
    proofs: servers(
      'kill -9 of the main API in the middle of runs: runs continue, and each trace is stored once after the restart',
    ),
  },
  {
    where: 'Postgres',
    what: 'Dies in the middle of runs, and is started again',
    happens:
      'Runs end as they would have, in the same attempt or in another one; readers get each event of an attempt once, no thread ' +
      'stays busy, each run counts once.',
    proofs: servers(
      'kill -9 of Postgres in the middle of runs, separate roles: runs end normally, in the same or a later attempt',
    ),
  },
  {
    where: 'agents',
    what: 'All die while a cron fires, while a webhook is sent, while runs wait for their `after_seconds`',
    happens:
      'The cron fires that time, once. The webhook is sent again, with the same body and a signature of its own. Runs start when ' +
      'their time has come, not before.',
    proofs: servers(
      'kill -9 of all agent servers while a cron fires, a webhook is sent and delayed runs wait: each happens once after the restart',
    ),
  },
  {
    where: 'agents',
    what: 'Processes die in the middle of firing crons, and while none is there a time comes',
    happens: 'Each time of each cron makes one run: none is left out, none comes twice.',
    proofs: crons(
      'kill -9 of agent servers while they fire crons and across a minute boundary: each time creates one run per cron',
    ),
  },
];
