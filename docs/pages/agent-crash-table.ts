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
      'kill -9 of the process that runs graphs: its runs begin another attempt and end; readers see both',
      'kill -9 while a graph within another is where it is to stop: it stops there in the next attempt, too',
    ),
  },
  {
    where: 'A process that runs graphs',
    what: 'Is killed by the same run each time',
    happens:
      'That run is given up with an error after three attempts; the last one is alone in its process, so that those beside it end well.',
    proofs: embedded(
      'a run whose process is killed each time is given up after its third attempt; its reader saw each, and what ran beside it ends well',
    ),
  },
  {
    where: 'runlake all',
    what: 'Dies in the middle of runs',
    happens:
      'Its runs are taken up again once their lease has run out, in their order; a cancel that was asked for holds. No thread stays ' +
      'busy. Readers of resumable runs come back with `Last-Event-ID` and get each event of an attempt once. Each run counts once.',
    proofs: embedded(
      'kill -9 in the middle of runs: they are taken up again in their order, what was asked before holds, each counts once',
    ),
  },
  {
    where: 'runlake all',
    what: 'Dies between the end of a run and its trace',
    happens: 'The next start tells the end to readers and writes the trace, which counts once.',
    proofs: embedded('killed between the end of a run and its trace: the next start tells the end and counts it once'),
  },
  {
    where: 'Embedded Postgres',
    what: 'Dies in the middle of runs',
    happens: 'It is started again; runs end as they would have, in the same attempt or in another one.',
    proofs: embedded(
      'kill -9 of Postgres in the middle of runs: they end as they would have, in this attempt or another',
    ),
  },
  {
    where: 'Embedded ClickHouse',
    what: 'Dies in the middle of runs',
    happens:
      'It is started again; runs go on meanwhile, and those that are resumable end once it has their events. Readers get all of them, ' +
      'later ones too; traces are there once.',
    proofs: embedded(
      'kill -9 of ClickHouse in the middle of runs: they end as they would have, readers get all, traces are there once',
    ),
  },
  {
    where: 'agents',
    what: 'One of several processes dies in the middle of runs',
    happens:
      'Another one takes its runs up once their lease has run out. Readers of that one stay; readers of the dead one resume there. ' +
      'What it had not given to the log yet is seen by nobody, also where the state behind it is stored.',
    proofs: servers(
      'kill -9 of one that runs: another takes its runs up, readers there follow both attempts to the end',
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
    proofs: servers('Kafka is killed in the middle of runs and started again: nothing that was streamed is missing'),
  },
  {
    where: 'ClickHouse',
    what: 'Dies in the middle of runs, and is started again',
    happens:
      'Runs go on and end; their readers notice nothing, and who comes back gets what is in memory of the process that is asked. What ' +
      'was streamed and traced meanwhile is stored once it is back, once.',
    proofs: servers(
      'ClickHouse is killed in the middle of runs: nobody notices, and when it is back what came meanwhile is there once',
    ),
  },
  {
    where: 'api',
    what: 'Dies in the middle of runs',
    happens: 'Runs and their readers notice nothing. Their traces are there once when it is back.',
    proofs: servers(
      'kill -9 of the main API in the middle of runs: they go on, and their traces are there once when it is back',
    ),
  },
  {
    where: 'Postgres',
    what: 'Dies in the middle of runs, and is started again',
    happens:
      'Runs end as they would have, in the same attempt or in another one; readers get each event of an attempt once, no thread ' +
      'stays busy, each run counts once.',
    proofs: servers(
      'kill -9 of Postgres in the middle of runs, roles apart: they end as they would have, in this attempt or another',
    ),
  },
  {
    where: 'agents',
    what: 'All die while a cron fires, while a webhook is sent, while runs wait for their `after_seconds`',
    happens:
      'The cron fires that time, once. The webhook is sent again, with the same body and a signature of its own. Runs start when ' +
      'their time has come, not before.',
    proofs: servers(
      'all are killed while a cron fires, a webhook is on its way and runs wait for their time: each happens once they are back, and once',
    ),
  },
  {
    where: 'agents',
    what: 'Processes die in the middle of firing crons, and while none is there a time comes',
    happens: 'Each time of each cron makes one run: none is left out, none comes twice.',
    proofs: crons(
      'those who fire crons are killed in the middle of it, and while a minute turns: each time makes one run of each',
    ),
  },
];
