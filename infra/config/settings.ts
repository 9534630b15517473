import { type Static, Type } from 'typebox';
import { agentSettings } from './agent-settings.ts';
import { exportSettings } from './export-settings.ts';
import { limitSettings } from './limit-settings.ts';
import { bytes, count, KIB, MIB, optional, required, type Setting, text, url } from './setting.ts';

export type { Setting } from './setting.ts';

const web = url('http', 'https');

/** Everything that Runlake can be told; nothing else reads the environment. */
export const settings = {
  // Where
  dataDir: required('RUNLAKE_DATA_DIR', text, '.runlake', 'Folder of the embedded engines and work files.'),
  host: required('RUNLAKE_HOST', text, '127.0.0.1', 'Address on which the main API listens.'),
  port: required('RUNLAKE_PORT', count(0, 65535), 1984, 'Port of the main API; 0 takes a free one.'),
  metricsHost: required(
    'RUNLAKE_METRICS_HOST',
    text,
    '127.0.0.1',
    'Address on which a role without an API of its own (ingest, exports) tells metrics and readiness.',
  ),
  metricsPort: required(
    'RUNLAKE_METRICS_PORT',
    count(0, 65535),
    9464,
    'Port on which a role without an API of its own (ingest, exports) tells metrics and readiness; 0 takes a free one.',
  ),
  serveMetrics: required(
    'RUNLAKE_SERVE_METRICS',
    Type.Boolean(),
    false,
    'Serve /metrics on the ports of the main API and of the agent server, without a key, to everybody who reaches them.',
  ),
  publicUrl: optional(
    'RUNLAKE_PUBLIC_URL',
    web,
    'Address under which clients reach the main API, for links in answers. Unset: the host that a request names.',
    true,
  ),
  logLevel: required(
    'RUNLAKE_LOG_LEVEL',
    Type.Union([
      Type.Literal('debug'),
      Type.Literal('info'),
      Type.Literal('warn'),
      Type.Literal('error'),
      Type.Literal('silent'),
    ]),
    'info',
    'Least level that is logged.',
  ),

  // Engines
  clickhouseUrl: optional(
    'RUNLAKE_CLICKHOUSE_URL',
    web,
    'ClickHouse, as http(s)://user:password@host:port/database. Unset: the embedded one.',
    true,
  ),
  databaseUrl: optional(
    'RUNLAKE_DATABASE_URL',
    url('postgres', 'postgresql'),
    'Postgres, as postgres://user:password@host:port/database. Unset: the embedded one.',
    true,
  ),
  redisUrl: optional(
    'RUNLAKE_REDIS_URL',
    url('redis', 'rediss'),
    'Redis for job queues. Unset: queues on Postgres.',
    true,
  ),
  kafkaBrokers: optional(
    'RUNLAKE_KAFKA_BROKERS',
    Type.String({ pattern: '^[^\\s,@/]+:\\d{1,5}(?:,\\s*[^\\s,@/]+:\\d{1,5})*$' }),
    'Kafka brokers, as host:port,host:port. Unset: the in-process event log.',
  ),
  schemaRegistryUrl: optional(
    'RUNLAKE_SCHEMA_REGISTRY_URL',
    web,
    'Schema registry with the Confluent API; needed with Kafka.',
    true,
  ),
  kafkaTopicPrefix: required(
    'RUNLAKE_KAFKA_TOPIC_PREFIX',
    Type.String({ maxLength: 100, pattern: '^[A-Za-z0-9._-]*$' }),
    '',
    'Begins the names of topics and consumer groups, so that several installations can share one Kafka.',
  ),
  kafkaPartitions: required(
    'RUNLAKE_KAFKA_PARTITIONS',
    count(1, 1_024),
    4,
    'Partitions of a Kafka topic that is created; one that exists is left as it is.',
  ),
  kafkaReplication: optional(
    'RUNLAKE_KAFKA_REPLICATION',
    count(1, 100),
    "Replicas of a Kafka topic that is created. Unset: the broker's default.",
  ),
  kafkaSessionTimeoutMs: required(
    'RUNLAKE_KAFKA_SESSION_TIMEOUT_MS',
    count(6_000, 60_000),
    15_000,
    'How long a process that stores events may give Kafka no sign of life before others take over its partitions, in milliseconds; brokers have limits of their own.',
  ),
  kafkaTls: required('RUNLAKE_KAFKA_TLS', Type.Boolean(), false, 'Speak TLS with the Kafka brokers.'),
  kafkaSaslMechanism: optional(
    'RUNLAKE_KAFKA_SASL_MECHANISM',
    Type.Union([Type.Literal('plain'), Type.Literal('scram-sha-256'), Type.Literal('scram-sha-512')]),
    'How to sign in to the Kafka brokers. Unset: without.',
  ),
  kafkaUser: optional('RUNLAKE_KAFKA_USER', text, 'User that signs in to the Kafka brokers.'),
  kafkaPassword: optional('RUNLAKE_KAFKA_PASSWORD', text, 'Password of RUNLAKE_KAFKA_USER.', true),
  tlsCaFile: optional(
    'RUNLAKE_TLS_CA_FILE',
    text,
    'PEM file of further certificate authorities that connections to all servers trust, beside those of Node.',
  ),
  secretKey: optional(
    'RUNLAKE_SECRET_KEY',
    // It has to fit into the list of former keys one day.
    Type.String({ minLength: 16, maxLength: 1024, pattern: '^[^\\s,][^,]*[^\\s,]$' }),
    'Seals stored credentials; 16 characters or more, no commas. Unset: made and kept in the data folder while engines are embedded.',
    true,
  ),
  formerSecretKeys: optional(
    'RUNLAKE_FORMER_SECRET_KEYS',
    text,
    'Earlier values of RUNLAKE_SECRET_KEY, separated by commas, under which credentials may still be sealed.',
    true,
  ),
  localExportRoot: optional(
    'RUNLAKE_LOCAL_EXPORT_ROOT',
    text,
    'Root folder for export destinations of type local. Unset: that type is refused.',
  ),
  allowPrivateEndpoints: required(
    'RUNLAKE_ALLOW_PRIVATE_ENDPOINTS',
    Type.Boolean(),
    false,
    'Allow export endpoints on loopback and private addresses; those that are link-local or hand out credentials never are.',
  ),
  allowDefaultCredentials: required(
    'RUNLAKE_ALLOW_DEFAULT_CREDENTIALS',
    Type.Boolean(),
    true,
    'Let export destinations that name no credentials use those that the S3 client finds: variables, profile, role of this machine. Set false to forbid it.',
  ),

  // First start
  bootstrapApiKey: optional(
    'RUNLAKE_BOOTSTRAP_API_KEY',
    Type.String({ minLength: 16, maxLength: 255, pattern: '^[A-Za-z0-9_.-]+$' }),
    'Admin key that the first start makes instead of a random one.',
    true,
  ),
  bootstrapOrganization: required(
    'RUNLAKE_BOOTSTRAP_ORGANIZATION',
    text,
    'Default',
    'Name of the organisation that the first start makes.',
  ),
  bootstrapWorkspace: required(
    'RUNLAKE_BOOTSTRAP_WORKSPACE',
    text,
    'Default',
    'Name of the workspace that the first start makes.',
  ),
  bootstrapEmail: required(
    'RUNLAKE_BOOTSTRAP_EMAIL',
    Type.String({ format: 'email' }),
    'admin@runlake.local',
    'Email of the user that the first start makes.',
  ),

  // Limits on requests
  maxBodyBytes: required('RUNLAKE_MAX_BODY_BYTES', bytes(), 100 * MIB, 'Largest request body, after decompression.'),
  maxJsonBodyBytes: required(
    'RUNLAKE_MAX_JSON_BODY_BYTES',
    bytes(64 * MIB),
    MIB,
    'Largest body of a request that sends no runs or feedback, such as a query or a project.',
  ),
  maxCollectingBytes: required(
    'RUNLAKE_MAX_COLLECTING_BYTES',
    bytes(64 * 1024 ** 3),
    512 * MIB,
    'Bytes of all ingest bodies that arrive or are taken in at the same time; beyond, organisations that hold more than their share get 503, and up to a quarter more is there for the others.',
  ),
  maxRunBytes: required(
    'RUNLAKE_MAX_RUN_BYTES',
    bytes(512 * MIB),
    25 * MIB,
    'Largest run event; topic and fetch sizes follow it.',
  ),
  maxParts: required(
    'RUNLAKE_MAX_PARTS',
    count(1, 10_000_000),
    100_000,
    'Most parts of a multipart body, runs of a JSON batch, spans of an OTLP request, and members of an object of its JSON.',
  ),
  maxJsonDepth: required('RUNLAKE_MAX_JSON_DEPTH', count(8, 1_000_000), 5_000, 'Deepest nesting of accepted JSON.'),
  maxUrlBytes: required('RUNLAKE_MAX_URL_BYTES', count(1024, 1_000_000), 64 * KIB, 'Longest request line.'),
  maxPageBytes: required(
    'RUNLAKE_MAX_PAGE_BYTES',
    bytes(),
    64 * MIB,
    'Most bytes of a page: one of traced runs ends early, with a cursor; one of the agent server is refused, unless it is a row alone.',
  ),
  requestTimeoutMs: required(
    'RUNLAKE_REQUEST_TIMEOUT_MS',
    count(100, 3_600_000),
    60_000,
    'Longest time in which a request has to arrive, in milliseconds.',
  ),
  queryTimeoutMs: required(
    'RUNLAKE_QUERY_TIMEOUT_MS',
    count(100, 3_600_000),
    30_000,
    'Longest time of one query of a read request, in milliseconds.',
  ),
  rateLimitPerKey: optional(
    'RUNLAKE_RATE_LIMIT_PER_KEY',
    count(1, 1_000_000),
    'Requests per second that one API key may send, to all processes together; beyond, they get 429. Unset: no limit.',
  ),
  rateLimitPerOrganization: optional(
    'RUNLAKE_RATE_LIMIT_PER_ORGANIZATION',
    count(1, 1_000_000),
    'Requests per second that one organisation may send, to all processes together; beyond, they get 429. Unset: no limit.',
  ),
  maxRunAgeDays: required(
    'RUNLAKE_MAX_RUN_AGE_DAYS',
    count(1, 36_500),
    1_096,
    'How far back start times are accepted, in days.',
  ),
  maxRunAheadHours: required(
    'RUNLAKE_MAX_RUN_AHEAD_HOURS',
    count(0, 8_760),
    24,
    'How far ahead start times are accepted, in hours.',
  ),
  patchWaitMs: required(
    'RUNLAKE_PATCH_WAIT_MS',
    count(0, 60_000),
    5_000,
    'How long a patch by id alone waits for its run, in milliseconds.',
  ),
  drainTimeoutMs: required(
    'RUNLAKE_DRAIN_TIMEOUT_MS',
    count(100, 600_000),
    30_000,
    'Longest time that accepted work gets at shutdown, in milliseconds.',
  ),

  // Ingest
  maxPendingBytes: required(
    'RUNLAKE_MAX_PENDING_BYTES',
    bytes(64 * 1024 ** 3),
    256 * MIB,
    'Bytes of accepted events that may wait for the event log; beyond, requests get 503.',
  ),
  publishTimeoutMs: required(
    'RUNLAKE_PUBLISH_TIMEOUT_MS',
    count(100, 600_000),
    10_000,
    'Longest time in which Kafka has to take the events of a request, in milliseconds for each 16 MiB begun; beyond, it gets 503.',
  ),
  maxFetchedBytes: required(
    'RUNLAKE_MAX_FETCHED_BYTES',
    bytes(64 * 1024 ** 3),
    256 * MIB,
    'Bytes of events fetched from Kafka that may wait in memory to be stored; beyond, fetching pauses.',
  ),
  logPartitions: required(
    'RUNLAKE_LOG_PARTITIONS',
    count(1, 1_024),
    1,
    'Partitions of a topic of the in-process event log.',
  ),
  cutRows: required('RUNLAKE_CUT_ROWS', count(1, 1_000_000), 20_000, 'Rows at which the sink cuts a batch.'),
  cutBytes: required('RUNLAKE_CUT_BYTES', bytes(), 64 * MIB, 'Bytes at which the sink cuts a batch.'),
  cutMs: required(
    'RUNLAKE_CUT_MS',
    count(10, 60_000),
    500,
    'How long the sink lets events gather in Kafka before it takes a small batch, in milliseconds.',
  ),
  knownTraces: required(
    'RUNLAKE_KNOWN_TRACES',
    count(1_000, 100_000_000),
    1_000_000,
    'Traces whose project and time the sink keeps in memory.',
  ),
  parkedEventHours: required(
    'RUNLAKE_PARKED_EVENT_HOURS',
    count(1, 8_760),
    24,
    'How long an event without project waits for its trace before it goes to the dead letters, in hours.',
  ),

  // Usage
  rollupIntervalMs: required(
    'RUNLAKE_ROLLUP_INTERVAL_MS',
    count(50, 60_000),
    1_000,
    'Longest pause between two passes of the usage roll-up, in milliseconds.',
  ),
  maxUsageWorkspaces: required(
    'RUNLAKE_MAX_USAGE_WORKSPACES',
    count(1, 10_000),
    200,
    'Most workspace ids of one usage request.',
  ),
  usageCacheBytes: required(
    'RUNLAKE_USAGE_CACHE_BYTES',
    count(0, 16 * 1024 ** 3),
    32 * MIB,
    'Bytes of usage counts that are kept in memory for as long as nothing of them changes; 0 keeps none.',
  ),

  // Bulk export
  ...exportSettings,

  // Agent server
  ...agentSettings,

  // What one organisation may have
  ...limitSettings,

  // Traces of Runlake itself: the variables of OpenTelemetry
  otlpTracesEndpoint: optional(
    'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    web,
    'Where traces of Runlake itself go, as OTLP over HTTP, taken as it stands. Neither this nor the next set: nothing is traced.',
    true,
  ),
  otlpEndpoint: optional(
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    web,
    'Where traces of Runlake itself go, as OTLP over HTTP, without the path `/v1/traces`.',
    true,
  ),
  otlpHeaders: optional(
    'OTEL_EXPORTER_OTLP_HEADERS',
    Type.String({ pattern: '^[^=,]+=[^,]*(?:,[^=,]+=[^,]*)*$' }),
    'Headers that go with exported traces, as name=value,name=value with values percent-encoded.',
    true,
  ),
  serviceName: required('OTEL_SERVICE_NAME', text, 'runlake', 'Name of this service in exported traces.'),
  tracesSampler: required(
    'OTEL_TRACES_SAMPLER',
    Type.Union([
      Type.Literal('parentbased_always_on'),
      Type.Literal('parentbased_traceidratio'),
      Type.Literal('parentbased_always_off'),
      Type.Literal('always_on'),
      Type.Literal('traceidratio'),
      Type.Literal('always_off'),
    ]),
    'parentbased_always_on',
    'Which requests are traced; parentbased: those whose sender traces them, and of the others as the rest of the name says.',
  ),
  tracesSamplerArg: required(
    'OTEL_TRACES_SAMPLER_ARG',
    Type.String({ pattern: '^(?:0(?:\\.\\d+)?|1(?:\\.0+)?)$' }),
    '1',
    'Share of requests that a sampler with traceidratio traces, from 0 to 1.',
  ),
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof settings;

type ValueOf<N extends SettingName> = (typeof settings)[N]['fallback'] extends undefined
  ? Static<(typeof settings)[N]['schema']> | undefined
  : Static<(typeof settings)[N]['schema']>;

/** The whole configuration, frozen. */
export type Config = { readonly [N in SettingName]: ValueOf<N> };
