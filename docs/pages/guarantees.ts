import { agentRows } from './agent-crash-table.ts';
import { type CrashRow, embeddedRows, exportRows, serverRows, stepRows } from './crash-table.ts';
import { code, type Page, page, table } from './markdown.ts';

const tableOf = (rows: readonly CrashRow[]) =>
  table(
    ['Where', 'What', 'What happens', 'Proof'],
    rows.map(({ where, what, happens, proofs }) => [
      where,
      what,
      happens,
      proofs.map(({ file, name }) => `${code(file)}: ${name}`).join('<br>'),
    ]),
  );

export function guaranteesPage(): Page {
  return page(
    'guarantees.md',
    'Guarantees',
    'docs/pages/crash-table.ts',
    'What Runlake promises about traces and their usage when processes die, servers go away and networks stall, what it does not ' +
      'promise, and the test behind each line.',
    '## Promised',
    [
      '- **Nothing accepted is lost.** A 2xx is answered only after all events of the request are in all in-sync replicas of Kafka. ' +
        'Without Kafka: after ClickHouse has them, or Postgres has those that wait for their trace.',
      '- **Nothing is counted twice.** A trace counts once: however often it is sent, accepted, read from the log, inserted or ' +
        'counted, by however many processes.',
      '- **Values are those of the newest event.** Of one run, in the order in which its events were accepted. A request that is sent ' +
        'again, by a client that lost the answer for example, does not undo a later patch: an event that repeats a stored one byte for ' +
        'byte, under the same API key, is dropped. That holds if it is accepted within ten minutes of the first, while the same sink ' +
        'process has the partition (without Kafka: until Runlake is started again) and has stored fewer than 100,000 events since. ' +
        'Otherwise the repeat is the newest event, and so is one that was deferred and released meanwhile by another process. A patch ' +
        'that is meant to bring old values back has to differ in anything, `end_time` for example.',
      '- **Nothing is acknowledged that is not durable.** An answer that never came, or a 503, promises nothing: the runs may be ' +
        'there or not. Whoever sends them again, under the same ids, gets each of them once.',
      '- **Nobody waits for ever.** Each request is answered: taken, refused for what it is (4xx), or told to come back (503 with ' +
        '`Retry-After`), within 10 s for each 16 MiB that goes to Kafka and 30 s for each query.',
      '- **Memory is bounded** while servers are away: by shares of `RUNLAKE_MEMORY_BYTES`, of which the API has half ' +
        'for bodies and a quarter for events that wait for the log, and the sink a quarter for events that it fetched.',
      '- **Shares under contention.** Queries, the memory for bodies, the batches of the in-process log and the workers of exports are shared by organisation while they ' +
        'are short; an organisation alone may use all of them.',
      '- **Shares of run slots.** A deployment has run slots of its own, in its own processes. Its callers share them: end users ' +
        'under custom authentication, else API keys. A caller alone may use all of them. The next slot is given to the caller with ' +
        'the fewest running graph runs. While all slots are used, a caller below its share (running graph runs divided by callers) ' +
        'gets one of the extra slots, a quarter of `RUNLAKE_AGENTS_RUNS_PER_WORKER`, rounded down. So a graph run of a caller that ' +
        'has none starts within a second, whatever another caller runs, unless the extra slots are used as well: then it is next when ' +
        'any graph run ends. With fewer than four graph runs per worker there are no extra slots. With more than 50 callers ' +
        'waiting, a claim considers 50 of them, from a random place.',
    ].join('\n'),
    '## Not promised',
    [
      '- **What clients give up.** The stock SDKs repeat a refused batch for about 15 s: JavaScript four times, 1, 2, 4 and 8 s ' +
        'apart, each of them stretched at random up to twofold; Python up to three times at each of three attempts, as ' +
        '`Retry-After` tells. An outage of Kafka (or, without it, of ClickHouse) that lasts longer loses the runs that they held, in ' +
        'the client; both write that to their log, and keep the runs in a folder of yours where `LANGSMITH_FAILED_TRACES_DIR` is ' +
        'set. The API has counted every refusal in `runlake_runs_rejected_total`, by error code: `EVENT_LOG_UNAVAILABLE` where the ' +
        'log did not take it, `OVERLOADED` where too much waited. A run that was refused and delivered later is in that count too.',
      '- **Power loss.** Kafka and ClickHouse answer when data is with the operating system, not when it is on disk. A machine that ' +
        'loses power can lose its last seconds. Against that: three brokers or more in places of their own ' +
        '(`RUNLAKE_KAFKA_REPLICATION=3`; topics that Runlake creates then want two in-sync replicas). ' +
        'What a ClickHouse lost can be stored anew while Kafka still has it: end the `ingest` processes, set the offsets of the ' +
        'group `sink-runs` back, start them again. One broker, as in `make stack`, survives the death of every process, not that ' +
        'of the machine.',
      '- **What Kafka deletes.** Events that are older than the retention of the topic before a sink stored them are gone; they are ' +
        'counted in `runlake_event_log_lost_events_total`. Keep the retention longer than the longest outage of ClickHouse.',
      '- **Events that arrive long after their workspace is deleted.** The data of a deleted workspace is deleted at once and again an hour ' +
        'later. What a sink stores after that stays in ClickHouse; no request reads it. Kafka keeps its records until their retention ends.',
      '- **Order between traces.** Events of a trace keep their order; those of two traces have none.',
      '- **A moment.** What was accepted can be read a little later, usually within a second; usage follows. ' +
        '`runlake_newest_visible_run_age_seconds` and `runlake_usage_delay_seconds` say how much later.',
      '- **A trace that nobody names a project for.** Its events wait for 24 hours, then go to the dead letters.',
    ].join('\n'),
    '## Each step of the path, with Kafka',
    'Each role is held at the step by a proxy and killed there with SIGKILL. After that, and after everything below: every accepted ' +
      'run is there once with the values that were sent, every usage figure equals a count of what was sent, and requests that were ' +
      'held heard nothing.',
    tableOf(stepRows),
    '## Each server, and the way to it',
    tableOf(serverRows),
    '## Without Kafka',
    tableOf(embeddedRows),
    '## Bulk exports',
    'A file that is recorded is whole in the bucket, was read back before it went up, and holds its members once. The manifest is ' +
      'written last, after each recorded file was found in the bucket with its size and ETag: a file that is gone or has other content ' +
      'fails the export without a retry. Files that may not be read (`s3:GetObject` is optional) are not checked; `unchecked_files` of ' +
      'the manifest counts them. A worker that stalled and lost its lease cannot write over a file on a store that knows conditional ' +
      'writes (`If-None-Match`, `If-Match`); on others its late write is found by the check, if it comes before the manifest. What belongs to an export, and what its values are, says docs/decisions/0050.',
    tableOf(exportRows),
    '## Agents',
    'At most one process writes for a run: the one that holds its lease, by the clock of Postgres. What becomes of a run is written ' +
      'before its readers are told of the end.',
    tableOf(agentRows),
    'The tests on servers run where `make stack` can run. `make chaos` runs those of this page that take their time for longer: ' +
      'ClickHouse is away for a minute, random faults go on for `MINUTES=10`, and a printed `SEED` brings the same ones again.',
  );
}
