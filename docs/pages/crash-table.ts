/** A test: its file and its title, or the name of a table row for a test that runs over a table. */
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

/** The tests of `names` in `file`. */
export const proofs =
  (file: string) =>
  (...names: readonly string[]): Proof[] =>
    names.map((name) => ({ file, name }));
const steps = proofs('test/crash/steps.test.ts');
const facts = proofs('test/pipelines/runs/stats/fact-stats.test.ts');
const stalls = proofs('test/crash/stalls.test.ts');
const servers = proofs('test/crash/servers.test.ts');
const embedded = proofs('test/crash/kill.test.ts');
const engines = proofs('test/crash/engines.test.ts');
const shards = proofs('test/crash/shards.test.ts');
const clickhouse = proofs('test/infra/embedded/clickhouse/start-clickhouse.test.ts');
const postgres = proofs('test/infra/embedded/postgres/start-postgres.test.ts');
const backlog = proofs('test/crash/backlog.test.ts');
const members = proofs('test/crash/members.test.ts');
const onKafka = proofs('test/infra/event-log/kafka/partition-consumer.test.ts');
const outage = proofs('test/infra/event-log/kafka/producer.test.ts');
const sdk = proofs('test/crash/sdk.test.ts');

/** Crashes of processes at each step of the ingest path, in its order. The event log is Kafka. */
export const stepRows: readonly CrashRow[] = [
  {
    where: 'api',
    what: 'Crashes before Kafka has the events',
    happens: 'The client gets no response and sends the request again. Nothing was stored.',
    proofs: steps('api before Kafka has the events'),
  },
  {
    where: 'api',
    what: 'Crashes after Kafka has the events, before it responds',
    happens:
      'The client gets no response and sends the request again. The repeat merges with the stored events; the trace counts once.',
    proofs: steps('api after Kafka has the events, before it receives the ack'),
  },
  {
    where: 'sink',
    what: 'Crashes before it knows the trace locations',
    happens: 'The next process reads the same events again.',
    proofs: steps('sink before it queries trace locations'),
  },
  {
    where: 'sink',
    what: 'Crashes before, while or after it defers an event whose trace is not known',
    happens: 'The next process defers the event, once, or stores it if its trace has arrived meanwhile.',
    proofs: steps(
      'sink before it defers an event',
      'sink while it defers an event, before Postgres commits',
      'sink after it defers an event, before it commits the offset',
    ),
  },
  {
    where: 'sink',
    what: 'Crashes before the insert',
    happens: 'Nothing of the batch is stored. The next process inserts its events, in the same batches or in others.',
    proofs: [...steps('sink before the insert'), ...onKafka('before the insert')],
  },
  {
    where: 'sink',
    what: 'Crashes during the insert',
    happens:
      'The next process inserts all events of the batch again, also into the derived tables. Rows that are stored merge with them.',
    proofs: steps('sink during the insert, half of it sent', 'sink during the insert, all of it sent'),
  },
  {
    where: 'sink',
    what: 'Crashes after the insert, before it marks the hours dirty',
    happens: 'The next process inserts the events again, which changes nothing, and marks their hours dirty.',
    proofs: [
      ...steps(
        'sink after the insert, before it receives the response',
        'sink after the insert, before it marks the hours dirty',
      ),
      ...onKafka('after the insert'),
    ],
  },
  {
    where: 'sink',
    what: 'Crashes between the insert and the commit, or right after the commit',
    happens:
      'Before the commit, the next process inserts the events again, which changes nothing; after it, the next process continues behind the batch.',
    proofs: steps('sink between the insert and the commit', 'sink after the commit, before it receives the response'),
  },
  {
    where: 'sink',
    what: 'Processes join and leave the group; one that lost its partition continues late',
    happens:
      'Kafka refuses the commits of the late process, and its inserts change nothing. Every value is that of the newest event.',
    proofs: [
      ...members('join, leave and are killed under load: no run is lost or duplicated'),
      {
        file: 'test/infra/event-log/kafka/consumer.test.ts',
        name: 'no run is lost or duplicated, and every run has its newest value',
      },
    ],
  },
  {
    where: 'Kafka',
    what: 'Partitions are added to a topic while everything runs',
    happens:
      'Sinks read the new partitions within half a minute. API processes use them after their next start. Events of a trace may then be in two partitions, and merge as before.',
    proofs: [
      {
        file: 'test/crash/partitions.test.ts',
        name: 'are added under load: no run is lost, duplicated or misplaced, also with producers that use the old number',
      },
    ],
  },
  {
    where: 'sink',
    what: 'An event can never be stored',
    happens:
      'The sink writes it to the dead-letter queue with its bytes and headers, and stores the events around it. A sink that crashes between the dead-letter record and the commit writes the record again.',
    proofs: onKafka(
      'foreign and damaged records go to the dead-letter queue unchanged; the records between them are stored',
    ),
  },
  {
    where: 'sink',
    what: 'An event can never be stored, and its dead-letter record cannot be written either',
    happens:
      'Its partition waits: the sink commits neither the event nor later ones until the dead-letter record is durable.',
    proofs: onKafka('if a dead-letter record cannot be written, its offset is not committed until the write succeeds'),
  },
  {
    where: 'sink',
    what: 'Its committed offset in Kafka is lost or moved back manually',
    happens: 'The sink stores all events from there again; the newest values remain, and no trace counts twice.',
    proofs: onKafka('moved back manually', 'deleted'),
  },
  {
    where: 'roll-up',
    what: 'Crashes while it counts hours, between hours and days, or before it deletes the dirty hours',
    happens: 'The dirty hours are still stored; the next roll-up run counts the same hours again, completely.',
    proofs: steps(
      'roll-up while it counts hours',
      'roll-up after it counts hours, before it counts days',
      'roll-up after the count, before it deletes the dirty hours',
    ),
  },
  {
    where: 'roll-up',
    what: 'Crashes while it lists the facts of runs for statistics',
    happens:
      'The hours are still dirty: statistics read their runs directly, and the next roll-up run lists the facts again.',
    proofs: facts('a roll-up run that dies %s it lists facts leaves their hours dirty'),
  },
];

/** Failures of each server, and of the connections to it. */
export const serverRows: readonly CrashRow[] = [
  {
    where: 'any role',
    what: 'Starts while servers are down, or a server goes down during the start',
    happens:
      'The role waits and logs which server it waits for. Its port listens: `/ok` returns 200, `/ready` 503 with the servers that are ' +
      'down, other requests 503 `STARTING`. SIGTERM ends the wait. If a server refuses the password or the schema, the process exits with that error.',
    proofs: [
      'all servers are down; they come up one after the other, and every role becomes ready and works',
      '%s: SIGTERM ends the wait for servers that accept connections and never answer',
      '%s: a wrong password ends the start, also while another server is away',
      'a schema that the registry refuses ends the start',
    ].map((name) => ({ file: 'test/crash/servers-away.test.ts', name })),
  },
  {
    where: 'Kafka',
    what: 'Crashes and is restarted',
    happens:
      'Requests get 503 with `Retry-After` within 10 s for each 16 MiB. Kafka appends each in-flight batch once, in order; sinks continue without intervention.',
    proofs: [...servers('Kafka is killed and restarted'), ...outage('kill and restart: the same as for a stall')],
  },
  {
    where: 'Kafka',
    what: 'Stalls for longer than the publish timeout of the API and the session timeout of the sink',
    happens:
      'The API returns 503 in time; pending events are bounded in bytes, and beyond that limit requests are refused at once. The sink rejoins the group and inserts the events after its committed offset.',
    proofs: [
      ...stalls(
        'api and Kafka, longer than the publish timeout',
        'sink and Kafka, longer than the session and request timeouts',
      ),
      ...outage(
        'stall: events are refused in time; afterwards no accepted event is missing, no older copy follows a newer event, and a follower receives each record once',
        'stall: pending events are bounded, later requests are refused at once, and every request ends',
      ),
    ],
  },
  {
    where: 'Kafka',
    what: 'Is down for less than, or longer than, the retries of the stock SDKs last',
    happens:
      'While its retries last, the SDK delivers when Kafka is back. After them it gives up its runs; the API has counted each refusal in `runlake_runs_rejected_total` by its error code.',
    proofs: sdk(
      'an outage shorter than the retries of the SDK: the SDK delivers when Kafka is back',
      'an outage shorter than the retries of the Python SDK: the SDK delivers, too',
      'an outage longer than the retries of the SDK, here one: the SDK gives up, the API counts each refusal, and later runs are accepted',
    ),
  },
  {
    where: 'ClickHouse',
    what: 'Is down under load',
    happens:
      'The API continues to accept. Events wait in Kafka, so memory stays bounded; the lag (`runlake_event_log_lag_events`) drains when ClickHouse is back. Reads get 503.',
    proofs: [
      ...servers('ClickHouse is down under load: the API continues to accept, and the lag drains'),
      ...backlog(
        'of 120 MiB while ClickHouse is down: a sink with a fetch limit of 8 MiB needs little memory and stores all events',
      ),
    ],
  },
  {
    where: 'ClickHouse',
    what: 'Stalls for longer than the insert timeout of the sink and the query timeout of the API',
    happens:
      'The sink aborts the insert and repeats it until it succeeds; it keeps its partitions meanwhile. Runs are accepted; reads get 503 in time, and so do patches by id alone, except patches of runs that were recently posted one by one.',
    proofs: stalls(
      'sink and ClickHouse, longer than the insert timeout',
      'api and ClickHouse, longer than the query timeout',
    ),
  },
  {
    where: 'Postgres',
    what: 'Crashes and is restarted, or stalls for longer than the query timeout',
    happens:
      'Requests that need it (a key or a project that is not cached) get 503 in time. The sink waits with its batch.',
    proofs: [
      ...servers('Postgres is killed and restarted'),
      ...stalls('api and Postgres, longer than the query timeout', 'sink and Postgres, longer than the query timeout'),
    ],
  },
  {
    where: 'Schema registry',
    what: 'Is down, or stalls, while all roles run',
    happens: 'No effect: each process has the schemas that it uses in memory.',
    proofs: [
      ...servers('the registry is down while all roles run: runs are accepted and stored'),
      ...stalls('api and the schema registry, longer than the request timeout'),
    ],
  },
  {
    where: 'Schema registry',
    what: 'Is down when a role starts',
    happens: 'The role waits, and `/ready` names the registry. The role starts when the registry is up.',
    proofs: servers('the registry is down at the start: a role that starts waits for it'),
  },
  {
    where: 'Redis',
    what: 'Crashes and is restarted',
    happens: 'Traces do not pass through Redis. Accepted jobs are done when it is back.',
    proofs: servers('Redis is killed and restarted: a deletion that was requested meanwhile is done'),
  },
  {
    where: 'Redis',
    what: 'Stalls for longer than the timeout for queueing a job',
    happens:
      'Ingest continues. A request that queues a job gets 503 in time; the work that it had begun is done afterwards.',
    proofs: stalls(
      'stalled between all roles and Redis: ingest continues, a job is refused in time and done afterwards',
    ),
  },
  {
    where: 'Kafka, ClickHouse, Postgres',
    what: 'The disk is full for a while',
    happens:
      'As when the server is down: requests whose data cannot be made durable get 503. The operator must restart a Kafka that exited because of the full disk; ClickHouse and Postgres continue without intervention when there is free space.',
    proofs: servers(
      'the disk of Kafka is full for a while',
      'the disk of ClickHouse is full for a while',
      'the disk of Postgres is full for a while',
    ),
  },
  {
    where: 'Kafka, ClickHouse, Postgres',
    what: 'One connection stops responding while others work: a response never arrives',
    happens: 'The request times out, the client discards its connection, and repeats the request on another one.',
    proofs: stalls('a commit of the sink', 'an insert of the sink', 'an insert of dirty hours'),
  },
  {
    where: 'All components',
    what: 'Random faults, one after another and two at a time',
    happens: 'Everything above holds.',
    proofs: proofs('test/crash/chaos.test.ts')(
      'random faults under load from the stock SDK: every accepted run is stored once and counted',
    ),
  },
];

/** Without Kafka: `runlake all` with the in-process event log. */
export const embeddedRows: readonly CrashRow[] = [
  {
    where: 'runlake all',
    what: 'Crashes under load',
    happens: 'The next start stores the runs that got a 202. Clients send the rest again.',
    proofs: embedded('kill -9 under load: every run that was acknowledged to the SDK is stored once and counted'),
  },
  {
    where: 'runlake all',
    what: 'Crashes before the log has the events',
    happens: 'The client gets no response and sends the request again, which merges with what was stored.',
    proofs: embedded(
      'kill -9 before ClickHouse has the events: each run is stored or not, counted once; the retry completes it',
    ),
  },
  {
    where: 'runlake all',
    what: 'Crashes after the log has the events: before the sink stores them, or before it marks their hours dirty',
    happens:
      'The next start reads the events from the log, inserts them, again if they are stored, and marks their hours dirty.',
    proofs: embedded(
      'kill -9 after the response, before the sink stores the events: the next start stores and counts them',
      'kill -9 after the insert, before its hour is marked dirty: the next start counts the run',
    ),
  },
  {
    where: 'runlake all',
    what: 'Crashes while a patch is deferred',
    happens: 'The patch is stored in Postgres and is released when its trace arrives.',
    proofs: embedded('a deferred patch survives kill -9 and is released when its trace arrives'),
  },
  {
    where: 'runlake all',
    what: 'Crashes and leaves engines behind, or is started twice on a data folder',
    happens: 'The engines exit without intervention; the second process is refused with one sentence.',
    proofs: embedded(
      'no process outlives kill -9, and a second process on the data folder is refused with one sentence',
    ),
  },
  {
    where: 'runlake all',
    what: 'Gets SIGTERM during an insert',
    happens: 'The request completes, and its events are stored; new requests get 503.',
    proofs: engines(
      'SIGTERM during an insert: the request completes, other requests get 503 with Retry-After, and the exit code is 0',
    ),
  },
  {
    where: 'Embedded ClickHouse, embedded Postgres',
    what: 'Crashes under load',
    happens: 'Runlake restarts it on its data; requests meanwhile get 503 with `Retry-After`.',
    proofs: engines('kill -9 of %s under load: clients get 503 with Retry-After, and no run is lost or duplicated'),
  },
  {
    where: 'One of two ClickHouse shards',
    what: 'Crashes under load',
    happens:
      'Requests that need it get 503 with `Retry-After` until it runs again; batches are inserted on both shards.',
    proofs: shards('kill -9 of shard %i under load: no run is lost, duplicated or counted twice'),
  },
  {
    where: 'Embedded ClickHouse, embedded Postgres',
    what: 'Stops responding while its process runs',
    happens:
      'After three consecutive liveness probes without a response (15 to 45 s) Runlake stops it and restarts it on its data.',
    proofs: [
      ...clickhouse('a server that does not respond is restarted on the same address with its data'),
      ...postgres('a server that does not respond is stopped and another one started'),
    ],
  },
];
