/** A test by its file and its title, or the name of its row where a test runs over a table. */
export interface Proof {
  readonly file: string;
  readonly name: string;
}

export interface CrashRow {
  readonly where: string;
  readonly what: string;
  readonly happens: string;
  readonly proofs: readonly Proof[];
}

const proofs =
  (file: string) =>
  (...names: readonly string[]): Proof[] =>
    names.map((name) => ({ file, name }));
const steps = proofs('test/crash/steps.test.ts');
const stalls = proofs('test/crash/stalls.test.ts');
const servers = proofs('test/crash/servers.test.ts');
const embedded = proofs('test/crash/kill.test.ts');
const engines = proofs('test/crash/engines.test.ts');
const clickhouse = proofs('test/infra/embedded/clickhouse/start-clickhouse.test.ts');
const postgres = proofs('test/infra/embedded/postgres/start-postgres.test.ts');
const backlog = proofs('test/crash/backlog.test.ts');
const members = proofs('test/crash/members.test.ts');
const onKafka = proofs('test/infra/event-log/kafka/sink-on-kafka.test.ts');
const outage = proofs('test/infra/event-log/kafka/outage.test.ts');
const sdk = proofs('test/crash/sdk.test.ts');
const exportWorker = proofs('test/crash/exports.test.ts');
const inBuckets = proofs('test/pipelines/exports/in-buckets.stack.ts');

/** Where processes die along the path, in its order; Kafka is the log. */
export const stepRows: readonly CrashRow[] = [
  {
    where: 'api',
    what: 'Dies before Kafka has the events',
    happens: 'The client hears nothing and sends again. Nothing was stored.',
    proofs: steps('api before Kafka has the events'),
  },
  {
    where: 'api',
    what: 'Dies after Kafka has the events, before it answers',
    happens: 'The client hears nothing and sends again. The repeat merges with what is stored; the trace counts once.',
    proofs: steps('api after Kafka has the events, before it knows and answers'),
  },
  {
    where: 'sink',
    what: 'Dies before it knows the places of the traces',
    happens: 'The next process reads the same events again.',
    proofs: steps('sink before it asks for the places of traces'),
  },
  {
    where: 'sink',
    what: 'Dies before, while and after it parks an event whose trace nobody knows',
    happens: 'The event is parked once, whatever comes again, and joins its trace when that appears.',
    proofs: steps(
      'sink before an event is parked',
      'sink while an event is parked, before that is committed',
      'sink after an event was parked, before its offset is committed',
    ),
  },
  {
    where: 'sink',
    what: 'Dies before the cut is written down',
    happens: 'Nothing of the cut is stored. The next process may divide its events otherwise.',
    proofs: steps('sink before the cut is written down'),
  },
  {
    where: 'sink',
    what: 'Dies after the cut is written down, before the insert',
    happens: 'The next process gathers exactly this cut and inserts it under the same token.',
    proofs: [
      ...steps('sink after the cut is written down, before it knows', 'sink between cut and insert'),
      ...onKafka('before the insert'),
    ],
  },
  {
    where: 'sink',
    what: 'Dies during the insert',
    happens:
      'What ClickHouse stored of it is recognised by the token; the repeat completes it, in the derived tables too.',
    proofs: steps('sink during the insert, half of it sent', 'sink during the insert, all of it sent'),
  },
  {
    where: 'sink',
    what: 'Dies after the insert, before the hours are noted for the usage count',
    happens: 'The cut comes again, changes nothing, and its hours are noted then.',
    proofs: [
      ...steps('sink after the insert, before it knows', 'sink between insert and the note of its hours'),
      ...onKafka('after the insert'),
    ],
  },
  {
    where: 'sink',
    what: 'Dies between insert and commit, or right after the commit',
    happens: 'Before the commit the cut comes again and changes nothing; after it the next one goes on behind it.',
    proofs: steps('sink between insert and commit', 'sink after the commit, before it knows'),
  },
  {
    where: 'sink',
    what: 'Processes join and leave; one that lost its partition goes on late',
    happens: 'Its commits are refused, its insert is a repeat. Every value is that of the newest event.',
    proofs: [
      ...members('join, leave and are killed under load: nothing is lost, nothing doubled'),
      {
        file: 'test/infra/event-log/kafka/rebalance.test.ts',
        name: 'nothing is lost, nothing doubled, and the newest value of every run stands',
      },
    ],
  },
  {
    where: 'sink',
    what: 'An event can never be stored',
    happens:
      'It goes to the dead letters with its bytes and headers, and what lies around it is stored. A sink that dies between the letter and its commit writes the letter again.',
    proofs: onKafka('strangers and damage go to the dead letters as they came; what lies between them is stored'),
  },
  {
    where: 'sink',
    what: 'An event can never be stored, and cannot be put to the dead letters either',
    happens: 'Its partition waits: nothing from it on is committed until the letter is durable.',
    proofs: onKafka('where a dead letter cannot be written its offset is not committed, and is once it can'),
  },
  {
    where: 'sink',
    what: 'Its position in Kafka is lost or set back by hand',
    happens: 'Everything from there is stored anew in order; the newest values stand, and no trace counts twice.',
    proofs: onKafka('set back by hand', 'gone'),
  },
  {
    where: 'roll-up',
    what: 'Dies while it counts hours, between hours and days, or before it deletes its notes',
    happens: 'The notes are still there; the next pass counts the same hours again, whole.',
    proofs: steps(
      'roll-up while hours are counted',
      'roll-up half-way, hours counted and days not',
      'roll-up after the count, before its notes are deleted',
    ),
  },
];

/** What becomes of each server, and of the way to it. */
export const serverRows: readonly CrashRow[] = [
  {
    where: 'any role',
    what: 'Starts while servers are away, or a server goes away during the start',
    happens:
      'The role waits and logs which server it waits for. Its port listens: `/ok` answers 200, `/ready` 503 with the servers that are ' +
      'down, other requests 503 `STARTING`. SIGTERM ends the wait. A refused password or schema ends the process with that error.',
    proofs: [
      'all servers are down; they come up one after the other, and every role becomes ready and works',
      '%s: SIGTERM ends the wait for servers that accept connections and never answer',
      '%s: a wrong password ends the start, also while another server is away',
      'a schema that the registry refuses ends the start',
    ].map((name) => ({ file: 'test/crash/servers-away.test.ts', name })),
  },
  {
    where: 'Kafka',
    what: 'Dies and is started again',
    happens:
      'Requests get 503 with `Retry-After` within 10 s for each 16 MiB. Batches under way go in once, in their place; sinks go on by themselves.',
    proofs: [...servers('Kafka is killed and started again'), ...outage('it is killed and started again: the same')],
  },
  {
    where: 'Kafka',
    what: 'Stalls: for the API longer than a publish may take, for the sink longer than a session',
    happens:
      'The API answers 503 in time; what waits is bounded in bytes, and beyond it requests are refused at once. The sink joins again and repeats the cut that it had begun.',
    proofs: [
      ...stalls('api and Kafka, longer than a publish may take', 'sink and Kafka, longer than a session and a request'),
      ...outage(
        'it stalls: refused in time; afterwards nothing taken is missing, nothing old comes late, and a tail has each record once',
        'what waits meanwhile is bounded, later requests are refused at once, and none of it waits for ever',
      ),
    ],
  },
  {
    where: 'Kafka',
    what: 'Is away for as long as the retries of the stock SDKs last, and for longer',
    happens:
      'Within them the SDK delivers once Kafka is back. After them it gives its runs up; each refusal was counted in `runlake_runs_rejected_total` by its error code.',
    proofs: sdk(
      'an outage that fits its retries: it delivers once Kafka is back',
      'an outage that fits the retries of the Python SDK: it delivers too',
      'an outage longer than its retries, here one: the SDK gives up, the API has counted each refusal, and later runs are taken',
    ),
  },
  {
    where: 'ClickHouse',
    what: 'Is away under load',
    happens:
      'The API goes on accepting. Events wait in Kafka, so memory stays bounded; the lag (`runlake_event_log_lag_events`) drains once it is back. Reads get 503.',
    proofs: [
      ...servers('ClickHouse is away under load: the API goes on accepting, lag drains'),
      ...backlog(
        'of 120 MiB while ClickHouse is away takes a sink that may hold 8 MiB little memory, and is stored whole',
      ),
    ],
  },
  {
    where: 'ClickHouse',
    what: 'Stalls: for the sink longer than an insert may take, for the API longer than a query',
    happens:
      'The insert is given up and repeated under its token until it is known to be stored; the sink keeps its partitions meanwhile. Runs are accepted; reads get 503 in time, and so do patches by id alone, but for runs that came one by one and lately.',
    proofs: stalls(
      'sink and ClickHouse, longer than an insert may take',
      'api and ClickHouse, longer than a query may take',
    ),
  },
  {
    where: 'Postgres',
    what: 'Dies and is started again, or stalls for longer than a query may take',
    happens:
      'Requests that need it (a key or a project that is not remembered) get 503 in time. The sink waits with the cut that it had begun.',
    proofs: [
      ...servers('Postgres is killed and started again'),
      ...stalls('api and Postgres, longer than a query may take', 'sink and Postgres, longer than a query may take'),
    ],
  },
  {
    where: 'Schema registry',
    what: 'Is gone, or stalls, while everything runs',
    happens: 'Nobody notices: each process knows the schemas that it uses.',
    proofs: [
      ...servers('the registry is gone while everything runs, and nobody notices'),
      ...stalls('api and the schema registry, longer than a request may take'),
    ],
  },
  {
    where: 'Schema registry',
    what: 'Is gone when a role starts',
    happens: 'The role waits, and `/ready` names the registry. It starts once the registry is there.',
    proofs: servers('the registry is gone at the start: a role that starts waits for it'),
  },
  {
    where: 'Redis',
    what: 'Dies and is started again',
    happens: 'Traces do not pass through it. Jobs that were taken are done once it is back.',
    proofs: servers('Redis is killed and started again: a job that was taken is done'),
  },
  {
    where: 'Redis',
    what: 'Stalls for longer than a job may take to be queued',
    happens: 'Traces go on. A request that queues a job gets 503 in time; what it had begun is done afterwards.',
    proofs: stalls('between all roles and Redis: traces go on, a job is refused in time and done afterwards'),
  },
  {
    where: 'Kafka, ClickHouse, Postgres',
    what: 'The disk is full for a while',
    happens:
      'As where the server is away: what cannot be made durable is refused with 503. A Kafka that ended for it has to be started again; the others go on by themselves once there is room.',
    proofs: servers(
      'the disk of Kafka is full for a while',
      'the disk of ClickHouse is full for a while',
      'the disk of Postgres is full for a while',
    ),
  },
  {
    where: 'Kafka, ClickHouse, Postgres',
    what: 'One connection falls silent while others work: an answer never comes',
    happens: 'The request runs into its limit, its connection is given up, and it is repeated on another one.',
    proofs: stalls('a commit of the sink', 'an insert of the sink', 'a note of hours'),
  },
  {
    where: 'Everything',
    what: 'Random faults, one after the other and two at a time',
    happens: 'All of the above.',
    proofs: proofs('test/crash/chaos.test.ts')(
      'random faults, strung together under load from the stock SDK: what was accepted is there once, and counted',
    ),
  },
];

/** Without Kafka: `runlake all` with the log in the process. */
export const embeddedRows: readonly CrashRow[] = [
  {
    where: 'runlake all',
    what: 'Dies under load',
    happens:
      'What was answered with 202 is in ClickHouse, or parked in Postgres. The rest is sent again by its clients.',
    proofs: embedded('kill -9 under load: what the SDK was told to be taken is there once, and counted'),
  },
  {
    where: 'runlake all',
    what: 'Dies between writing the cut down and the insert, or between insert and note',
    happens: 'The next start notes the hours of every cut that was written down. Nobody was answered; a repeat merges.',
    proofs: embedded(
      'killed between writing the cut down and the insert: each run is there or not, counted once; the retry mends it',
      'killed between the insert and the note of its hour: the next start counts it, though nobody sends again',
    ),
  },
  {
    where: 'runlake all',
    what: 'Dies while a patch waits for its trace',
    happens: 'It is parked in Postgres and joins later.',
    proofs: embedded('a patch that waits for its trace survives kill -9 and joins later'),
  },
  {
    where: 'runlake all',
    what: 'Dies and leaves engines behind, or is started twice on a folder',
    happens: 'The engines end by themselves; the second one is refused in one sentence.',
    proofs: embedded('no process outlives kill -9, and a second one on the folder is refused in one sentence'),
  },
  {
    where: 'runlake all',
    what: 'Gets SIGTERM during an insert',
    happens: 'The insert is finished and answered; new requests get 503.',
    proofs: engines(
      'SIGTERM while an insert is under way: it is finished, others are told to come back, and the exit is clean',
    ),
  },
  {
    where: 'Embedded ClickHouse, embedded Postgres',
    what: 'Dies under load',
    happens: 'It is started again on its data; requests meanwhile get 503 with `Retry-After`.',
    proofs: engines('kill -9 of %s under load: clients are told to wait, nothing is lost or doubled'),
  },
  {
    where: 'Embedded ClickHouse, embedded Postgres',
    what: 'Stops answering, while its process runs',
    happens:
      'After three liveness probes in a row without an answer (15 to 45 s) it is stopped and started again on its data.',
    proofs: [
      ...clickhouse('a server that does not answer is started again, on the same address with its data'),
      ...postgres('a server that does not answer is ended, another comes up'),
    ],
  },
];

/** Bulk exports: the rows in Postgres are the truth, the queue only says which of them to look at. */
export const exportRows: readonly CrashRow[] = [
  {
    where: 'A worker of an export',
    what: 'Dies at any step of a run: counting, finding, reading, encoding, uploading, recording',
    happens:
      'Its lease runs out, another worker takes the run up behind the last recorded file. A part that was on its way is written ' +
      'again, over whatever is there. It costs no retry.',
    proofs: exportWorker('$when $step: another one goes on, and nothing finished is done twice'),
  },
  {
    where: 'A worker of an export',
    what: 'Dies while a file is on its way to a bucket: before, in and after an upload in parts, and before the end of the export',
    happens:
      'No object is half there. Uploads that it began are taken back as far as rights allow, also one whose id it could not note ' +
      'any more, where uploads may be listed.',
    proofs: exportWorker('%s: it is whole as if nothing had happened'),
  },
  {
    where: 'Redis, ClickHouse, Postgres',
    what: 'Dies while an export works, and is started again',
    happens:
      'The export goes on by itself behind the last recorded file. Only where ClickHouse was away does it cost a retry. A queue ' +
      'that was lost is rebuilt from the rows.',
    proofs: [
      ...proofs('test/crash/export-servers.test.ts')(
        '$server is killed $when a $step and started again: the export goes on by itself and is whole',
      ),
      ...proofs('test/pipelines/exports/coordinate-export.test.ts')(
        'a lost queue is rebuilt from the rows: exports that wait, that run, and runs that are due',
      ),
    ],
  },
  {
    where: 'The bucket',
    what: 'Answers with 503, breaks connections, stands still, or loses an answer',
    happens: 'The client tries again, then the run does, behind the last recorded file. No upload in parts is left.',
    proofs: inBuckets(
      '%s: is tried again, and goes on behind the last file',
      'an answer that is lost, to %s: nothing is there twice, and nothing is left',
      'goes on behind the last file, and is whole',
    ),
  },
  {
    where: 'The bucket',
    what: 'Is deleted, or its key loses its rights or expires, while an export works',
    happens:
      'The run and its export fail at once, with the cause. Finished files that are still there remain, and are listed.',
    proofs: inBuckets('%s: fails at once, with its siblings'),
  },
  {
    where: 'The owner',
    what: 'Cancels an export while a file is on its way',
    happens:
      'The upload ends within two seconds and is taken back, once the store answers. Finished files remain, and are listed.',
    proofs: inBuckets(
      'cancelled: the upload ends within two seconds and is taken back, finished files stay',
      'cancelled while the store hangs: what is left there goes once it answers',
      'cancelled: finished files stay, and so does what may not be taken back',
    ),
  },
];
