import { type CrashRow, proofs } from './crash-table.ts';

const embedded = proofs('test/crash/agents.test.ts');
const parts = proofs('test/api/agent-server/agent-parts.stack.ts');
const servers = proofs('test/crash/agent-servers.test.ts');
const crons = proofs('test/crash/agent-crons.test.ts');

/** Graph runs: their rows in Postgres are authoritative; a lease decides which process may write. */
export const agentRows: readonly CrashRow[] = [
  {
    where: 'Worker process',
    what: 'Is killed during graph runs',
    happens:
      'Its graph runs begin another attempt from the last stored checkpoint. Readers stay connected: the event `metadata` announces ' +
      'the new attempt. A graph run that had reached an interrupt, also in a subgraph, stops there again. A graph run whose own ' +
      'code ends its process fails with an error instead.',
    proofs: embedded(
      'kill -9 of a worker process: its runs start another attempt and end, and readers see both attempts',
      'kill -9 while a subgraph is at its interrupt: the next attempt stops there, too',
    ),
  },
  {
    where: 'Worker process',
    what: 'Is killed by the same graph run each time',
    happens:
      'That graph run fails with an error after three attempts. The last attempt runs alone in its process, so that concurrent graph runs succeed.',
    proofs: embedded(
      'a run whose process is killed each time fails after its third attempt; its reader sees each attempt, and concurrent runs succeed',
    ),
  },
  {
    where: 'runlake all',
    what: 'Crashes during graph runs',
    happens:
      'Its graph runs are requeued in their order when their leases have expired; an earlier cancel request holds. No thread stays ' +
      'busy. Readers of resumable runs reconnect with `Last-Event-ID` and get each event of an attempt once. Each run counts once.',
    proofs: embedded(
      'kill -9 in the middle of runs: they are requeued in order, an earlier cancel holds, and each counts once',
    ),
  },
  {
    where: 'runlake all',
    what: 'Crashes between the end of a graph run and its trace',
    happens: 'The next start publishes the end to readers and writes the trace, which counts once.',
    proofs: embedded(
      'kill -9 between the end of a run and its trace: the next start publishes the end and counts the run once',
    ),
  },
  {
    where: 'Embedded Postgres',
    what: 'Crashes during graph runs',
    happens: 'Runlake restarts it; graph runs end with the same result, in the same attempt or in another one.',
    proofs: embedded('kill -9 of Postgres in the middle of runs: runs end normally, in the same or a later attempt'),
  },
  {
    where: 'Embedded ClickHouse',
    what: 'Crashes during graph runs',
    happens:
      'Runlake restarts it; graph runs continue meanwhile, and resumable ones end when ClickHouse has their events. Readers get all ' +
      'events, later readers too; each trace is stored once.',
    proofs: embedded(
      'kill -9 of ClickHouse in the middle of runs: runs end normally, readers get all events, each trace is stored once',
    ),
  },
  {
    where: 'agents',
    what: 'One of several processes crashes during graph runs',
    happens:
      'Another process requeues its graph runs when their leases have expired. Readers of the other process stay connected; readers of the ' +
      'crashed one resume there. No reader sees events that the crashed process had not yet published to the event log, even if a ' +
      'later checkpoint is stored.',
    proofs: servers(
      'kill -9 of one agent server: another requeues its runs, and readers there follow both attempts to the end',
    ),
  },
  {
    where: 'agents --front-only, agents --work-only',
    what: 'Crashes during graph runs',
    happens:
      'The crash of a front process does not affect graph runs; their readers reconnect to another front process. Graph runs of a ' +
      'crashed work process begin another attempt in another one; readers stay connected.',
    proofs: parts(
      'the kill of a front process does not affect graph runs, and their readers reconnect to another front process',
      'another worker process continues the graph run of a killed one',
    ),
  },
  {
    where: 'Kafka',
    what: 'Crashes during graph runs and is restarted',
    happens:
      'Streamed events wait for Kafka in bounded memory, and their graph runs wait, too. No streamed event is missing or duplicated.',
    proofs: servers('kill -9 of Kafka in the middle of runs: no streamed event is missing after the restart'),
  },
  {
    where: 'ClickHouse',
    what: 'Crashes during graph runs and is restarted',
    happens:
      'Graph runs continue and end; their readers are not affected. A reader that reconnects gets the events in the memory of the ' +
      'process that it connects to. Events and traces of the meantime are stored, once, when ClickHouse is back.',
    proofs: servers(
      'kill -9 of ClickHouse in the middle of runs: runs and readers continue, and events are stored once after the restart',
    ),
  },
  {
    where: 'api',
    what: 'Crashes during graph runs',
    happens: 'Graph runs and their readers are not affected. Each of their traces is stored once when the API is back.',
    proofs: servers(
      'kill -9 of the main API in the middle of runs: runs continue, and each trace is stored once after the restart',
    ),
  },
  {
    where: 'Postgres',
    what: 'Crashes during graph runs and is restarted',
    happens:
      'Graph runs end with the same result, in the same attempt or in another one; readers get each event of an attempt once, no ' +
      'thread stays busy, each run counts once.',
    proofs: servers(
      'kill -9 of Postgres in the middle of runs, separate roles: runs end normally, in the same or a later attempt',
    ),
  },
  {
    where: 'agents',
    what: 'All crash while a cron fires, while a webhook is sent, while graph runs wait for their `after_seconds`',
    happens:
      'The cron fires once for that time. The webhook is sent again, with the same body and a new signature. Graph runs start at ' +
      'their time, not before.',
    proofs: servers(
      'kill -9 of all agent servers while a cron fires, a webhook is sent and delayed runs wait: each happens once after the restart',
    ),
  },
  {
    where: 'agents',
    what: 'Processes crash while they fire crons, and a cron is due while no process runs',
    happens: 'Each time of each cron creates one graph run: none is skipped, none is created twice.',
    proofs: crons(
      'kill -9 of agent servers while they fire crons, and a time at which none runs: each time creates one run per cron',
    ),
  },
];
