import { agentRows } from './agent-crash-table.ts';
import { type CrashRow, embeddedRows, serverRows, stepRows } from './crash-table.ts';
import { deploymentRows } from './deployment-crash-table.ts';
import { exportRows } from './export-crash-table.ts';
import { code, type Page, page, table } from './markdown.ts';

const tableOf = (rows: readonly CrashRow[]) =>
  table(
    ['Component', 'Failure', 'Effect', 'Test'],
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
    'docs/pages/*crash-table.ts',
    'What Runlake guarantees for traces and their usage when processes crash, servers go down and networks stall, what it does not ' +
      'guarantee, and the test for each failure.',
    '## Guaranteed',
    [
      '- **No accepted event is lost.** Runlake returns a 2xx only after all events of the request are in all in-sync replicas of ' +
        'Kafka. Without Kafka: after the table `event_log` of ClickHouse has them.',
      '- **No trace counts twice.** A trace counts once, however often it is sent, accepted, read from the log, inserted or ' +
        'counted, and by however many processes. If events of a trace state different hours and the one that was accepted first ' +
        'arrives last, a sink moves the trace: until the roll-up run after the move, usually for seconds, both hours may count it. If the ' +
        'sink is killed or a store fails meanwhile, the move is completed when its batch is repeated. A trace counts in two hours if:',
      '  - An event arrives a week after its trace has expired, and states another hour as the time of the trace, for example a late ' +
        'span over OTLP.',
      '  - ClickHouse completes an insert, wholly or in part, after its sink was killed or has given up and another sink has stored the ' +
        'same batch. The events of the trace must also state different hours and be in two partitions, as after partitions were ' +
        'added. Both hours then count it until a sink reads its locations again for a later event.',
      '- **Values are those of the newest event** of a run, in the order in which the log accepted its events: by the time of the ' +
        'broker, then by offset. Neither the order of inserts nor the number of times that an event is inserted matters, so ' +
        'redelivery, other batches, several sinks and a late process change nothing.',
      '- **A request that is sent again does not undo a newer one**, for example if its client lost the response: an event that repeats ' +
        'a stored one byte for byte, under the same API key, keeps the place of that one in the order. This also holds for feedback and ' +
        'attachments that are posted again, after restarts, and if another sink handles the repeat. So a patch that is meant to ' +
        'restore old values within ten minutes must differ in some field, for example `end_time`. The repeat is the newest event if:',
      '  - It is accepted more than ten minutes after the first event, or the sink handles it more than a day after it stored that.',
      '  - Partitions were added, and events of the run are in two of them.',
      '  - The price of its model has changed between them.',
      '  - It is a post that repeats a post, of a root run without `dotted_order` or in a trace that the sink process has known since ' +
        'before its last 200,000 runs.',
      '  - It is a change of feedback (`PATCH /feedback/{id}`), or feedback without `created_at` and `modified_at`.',
      '- **A run is stored once**, also if its events state different start times or were sent without one to several API processes: ' +
        'the first event decides the time under which the run is stored. Two events of a run that name different traces are always ' +
        'two runs. Otherwise a run is stored twice, so that a read by id returns the run of the event that was accepted first, and queries ' +
        'return both, if:',
      '  - Two posts, or a patch and then a post, state different times, and the sink process has stored more than 200,000 runs between ' +
        'them.',
      '  - Two sinks handle events of the run at the same time, as after partitions were added.',
      '- **A feedback entry is stored once**: if it is sent again under its id, the newest one replaces it, also for another run and ' +
        'through another API process. Each change keeps those before it, also if several API processes get them at the same moment. ' +
        'Exception: an entry that is sent for another run in a multipart body more than a day after it was last stored is a second one.',
      '- **Only durable events are acknowledged.** A 503 or a missing response promises nothing: the runs may be stored or not. A ' +
        'client that sends them again, under the same ids, gets each of them once.',
      '- **No request waits without a limit.** Each request gets a response: accepted, rejected (4xx), or 503 with `Retry-After`, ' +
        'within 30 s for each query and 10 s for each 16 MiB that goes to the event log. Without Kafka, this time also includes that of ' +
        'the requests before it.',
      '- **Memory is bounded** while servers are down, by shares of `RUNLAKE_MEMORY_BYTES`: the API uses half of it for bodies and a ' +
        'quarter for events that wait for the log or, without Kafka, for the sink; with Kafka, the sink uses a sixteenth for fetched events, ' +
        'which need about three times as much. Each run, span and part of an ingest request counts as at least 1,400 bytes in addition to ' +
        'the body, so that requests of very many small items get 503, or 413 if they alone exceed the share, before they exhaust the heap. A request has at most 100,000 of them.',
      '- **Fair shares between organisations.** While queries, the memory for bodies, the inserts of the in-process log, the workers ' +
        'of exports or build slots are scarce, Runlake divides them between organisations. A single active organisation may use all of them.',
      '- **Fair shares of run slots.** Each deployment has its own run slots, in its own processes. Its callers share them: end users ' +
        'under custom authentication, otherwise API keys. A single active caller may use all of them. The next slot goes to the caller ' +
        'with the fewest running graph runs. While all slots are used, a caller below its share (running graph runs divided by callers) ' +
        'gets one of the extra slots, a quarter of `RUNLAKE_AGENTS_RUNS_PER_WORKER`, rounded down. A graph run of a caller that has ' +
        'none running therefore starts within a second, whatever another caller runs, unless the extra slots are used as well: then it ' +
        'is next when any graph run ends. With fewer than four graph runs per worker there are no extra slots. If more than 50 ' +
        'callers wait, a claim considers 50 of them, starting at a random position.',
    ].join('\n'),
    '## Not guaranteed',
    [
      '- **Runs that clients give up.** The stock SDKs repeat a refused batch for about 15 s: JavaScript four times, after 1, 2, 4 and ' +
        '8 s, each delay multiplied by a random factor of up to two; Python up to three times in each of three attempts, after the ' +
        'delay in `Retry-After`. An outage of Kafka (or, without it, of ClickHouse) that lasts longer loses, in the client, the runs ' +
        'that the client holds; both SDKs log this, and store the runs in the folder `LANGSMITH_FAILED_TRACES_DIR` if it is set. The ' +
        'API has counted every refusal in `runlake_runs_rejected_total`, by error code: `EVENT_LOG_UNAVAILABLE` if the log did not ' +
        'accept the runs, `OVERLOADED` if too many bytes were pending. The count includes runs that were refused and delivered later.',
      '- **Power loss.** Kafka and ClickHouse respond when the operating system has the data, not when it is on disk. A machine that ' +
        'loses power can lose the data of its last seconds. As protection, run three or more brokers in separate locations ' +
        '(`RUNLAKE_KAFKA_REPLICATION=3`; topics that Runlake creates then require two in-sync replicas). ' +
        'Data that a ClickHouse lost can be stored again while Kafka still has it: stop the `ingest` processes, move the offsets of the ' +
        'group `sink-run-events` back, and start the processes again. One broker, as in `make stack`, survives the crash of every process, ' +
        'but not of the machine.',
      '- **Events that Kafka deletes.** An event that exceeds the retention of its topic before a sink stores it is lost; ' +
        '`runlake_event_log_lost_events_total` counts it. Keep the retention longer than the longest outage of ClickHouse. A dead-letter ' +
        'record is lost at the end of the retention of its topic, by default after seven days.',
      '- **Stream events of a thread right after its deletion.** Its runs and state are deleted at once, and no request reads its stored ' +
        'events. These are deleted from ClickHouse one to two hours later, as soon as the sinks have stored what was published before. ' +
        'Kafka keeps its records until their retention ends.',
      '- **Events that arrive long after their workspace or project is deleted.** Runlake deletes its data at once, and again an hour ' +
        'later, as soon as the sinks have stored what was accepted before. Data that a sink stores after that stays in ClickHouse; no ' +
        'request reads it. Kafka keeps its records until their retention ends.',
      '- **Runs that expire while their export waits.** An export includes the runs that had not expired at its creation. Expired runs leave ClickHouse a week later; an export that starts after that contains none of them and does not count them.',
      '- **Order between traces.** Events of a run have an order, by which their values merge; events of two traces have none.',
      '- **Immediate visibility.** An accepted run is readable a little later, usually within a second; its usage follows. Without Kafka, ' +
        'a query waits until what its organisation sent before is stored, at most 5 s. ' +
        '`runlake_newest_visible_run_age_seconds` and `runlake_usage_delay_seconds` show how much later. A patch that names its run only by ' +
        'id gets 503 instead of 404 while the sinks are behind, because its run may be among the events that are not stored. With Kafka, ' +
        'changes and deletions of feedback get 503, too, because each is based on the one before.',
      '- **A trace without a project.** If no event of a trace names a project, its events are deferred for 24 hours and then moved to ' +
        'the dead-letter queue.',
    ].join('\n'),
    '## Each step of the path, with Kafka',
    'A proxy blocks each role at the step, and the test kills the role there with SIGKILL. After that, and after each failure in the ' +
      'tables below: every accepted run is stored once with the values that were sent, every usage figure equals a count of what was ' +
      'sent, and the blocked requests got no response.',
    tableOf(stepRows),
    '## Each server, and the connections to it',
    tableOf(serverRows),
    '## Without Kafka',
    tableOf(embeddedRows),
    '## Bulk exports',
    'A recorded file is complete in the bucket, was read back before its upload, and contains each of its runs once. Runlake writes the ' +
      'manifest last, after it has found each recorded file in the bucket with its size and ETag: a file that is missing or has other ' +
      'content fails the export without a retry. Files that the key may not read (`s3:GetObject` is optional) are not checked; ' +
      '`unchecked_files` of the manifest counts them. A worker that stalled and lost its lease cannot overwrite a file on a store with ' +
      'conditional writes (`If-None-Match`, `If-Match`, also when a multipart upload completes); on other stores the check finds its late write, if it comes before the ' +
      'manifest. docs/decisions/0050 defines which runs belong to an export, and their values.',
    tableOf(exportRows),
    '## Agents',
    'At most one process writes for a graph run: the one that holds its lease, by the clock of Postgres. Runlake stores the outcome of a ' +
      'graph run before it publishes the end to readers.',
    tableOf(agentRows),
    '## Deployments',
    'At most one host has the lease of a revision or of a replica. A revision that fails leaves the previous one serving.',
    tableOf(deploymentRows),
    'The tests with servers run on machines that can run `make stack`. `make chaos` runs the tests of this page that depend on time for ' +
      'longer: ClickHouse is down for a minute, random faults run for `MINUTES=10`, and a printed `SEED` selects the same faults again.',
  );
}
