import { type Static, Type } from 'typebox';
import { agentSettings } from './agent-settings.ts';
import { exportSettings } from './export-settings.ts';
import { limitSettings } from './limit-settings.ts';
import { bytes, count, KIB, MIB, optional, required, type Setting, text, url } from './setting.ts';

export type { Setting } from './setting.ts';

const web = url('http', 'https');

/** Every setting of Runlake. Only `infra/config` reads the environment. */
export const settings = {
  // Addresses and folders
  dataDir: required('RUNLAKE_DATA_DIR', text, '.runlake', 'Folder for the embedded engines and for work files.'),
  host: required('RUNLAKE_HOST', text, '127.0.0.1', 'Listen address of the main API.'),
  port: required('RUNLAKE_PORT', count(0, 65535), 1984, 'Port of the main API; 0 picks a free port.'),
  metricsHost: required(
    'RUNLAKE_METRICS_HOST',
    text,
    '127.0.0.1',
    'Listen address for metrics and readiness of roles without their own API (ingest, exports).',
  ),
  metricsPort: required(
    'RUNLAKE_METRICS_PORT',
    count(0, 65535),
    9464,
    'Port for metrics and readiness of roles without their own API (ingest, exports); 0 picks a free port.',
  ),
  serveMetrics: required(
    'RUNLAKE_SERVE_METRICS',
    Type.Boolean(),
    false,
    'Serve /metrics on the ports of the main API and the agent server. The endpoint needs no API key: anyone who can reach the port can read it.',
  ),
  publicUrl: optional(
    'RUNLAKE_PUBLIC_URL',
    web,
    'URL under which clients reach the main API; used for links in responses. Unset: the host of each request.',
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
    'Minimum log level.',
  ),

  // Engines
  clickhouseUrl: optional(
    'RUNLAKE_CLICKHOUSE_URL',
    web,
    'ClickHouse, as http(s)://user:password@host:port/database. Unset: the embedded ClickHouse.',
    true,
  ),
  databaseUrl: optional(
    'RUNLAKE_DATABASE_URL',
    url('postgres', 'postgresql'),
    'Postgres, as postgres://user:password@host:port/database. Unset: the embedded Postgres.',
    true,
  ),
  redisUrl: optional(
    'RUNLAKE_REDIS_URL',
    url('redis', 'rediss'),
    'Redis for the job queues. Unset: the queues are kept in Postgres.',
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
    'Schema registry with the Confluent API; required with Kafka.',
    true,
  ),
  kafkaTopicPrefix: required(
    'RUNLAKE_KAFKA_TOPIC_PREFIX',
    Type.String({ maxLength: 100, pattern: '^[A-Za-z0-9._-]*$' }),
    '',
    'Prefix of topic and consumer group names, so that several installations can share one Kafka cluster.',
  ),
  kafkaPartitions: required(
    'RUNLAKE_KAFKA_PARTITIONS',
    count(1, 1_024),
    4,
    'Number of partitions of the Kafka topics that Runlake creates; existing topics are not changed.',
  ),
  kafkaReplication: optional(
    'RUNLAKE_KAFKA_REPLICATION',
    count(1, 100),
    "Replication factor of the Kafka topics that Runlake creates. Unset: the broker's default.",
  ),
  kafkaSessionTimeoutMs: required(
    'RUNLAKE_KAFKA_SESSION_TIMEOUT_MS',
    count(6_000, 60_000),
    15_000,
    'Kafka consumer session timeout, in milliseconds: without heartbeats for this long, a consumer loses its partitions to others. Brokers enforce their own bounds.',
  ),
  kafkaTls: required('RUNLAKE_KAFKA_TLS', Type.Boolean(), false, 'Connect to the Kafka brokers with TLS.'),
  kafkaSaslMechanism: optional(
    'RUNLAKE_KAFKA_SASL_MECHANISM',
    Type.Union([Type.Literal('plain'), Type.Literal('scram-sha-256'), Type.Literal('scram-sha-512')]),
    'SASL mechanism for the Kafka brokers. Unset: no authentication.',
  ),
  kafkaUser: optional('RUNLAKE_KAFKA_USER', text, 'SASL user name for the Kafka brokers.'),
  kafkaPassword: optional('RUNLAKE_KAFKA_PASSWORD', text, 'Password of RUNLAKE_KAFKA_USER.', true),
  tlsCaFile: optional(
    'RUNLAKE_TLS_CA_FILE',
    text,
    'PEM file with additional certificate authorities, trusted for connections to all servers besides the authorities built into Node.',
  ),
  secretKey: optional(
    'RUNLAKE_SECRET_KEY',
    // A former key is listed in RUNLAKE_FORMER_SECRET_KEYS, which separates keys by commas.
    Type.String({ minLength: 16, maxLength: 1024, pattern: '^[^\\s,][^,]*[^\\s,]$' }),
    'Key that encrypts stored credentials; at least 16 characters, no commas. Unset: with embedded engines, a key is generated and kept in the data folder; otherwise required.',
    true,
  ),
  formerSecretKeys: optional(
    'RUNLAKE_FORMER_SECRET_KEYS',
    text,
    'Earlier values of RUNLAKE_SECRET_KEY, separated by commas; credentials that were encrypted with them stay readable.',
    true,
  ),
  localExportRoot: optional(
    'RUNLAKE_LOCAL_EXPORT_ROOT',
    text,
    'Root folder for export destinations of type local. Unset: destinations of that type are refused.',
  ),
  allowPrivateEndpoints: required(
    'RUNLAKE_ALLOW_PRIVATE_ENDPOINTS',
    Type.Boolean(),
    false,
    'Allow export endpoints on loopback and private addresses. Link-local addresses and credential (metadata) endpoints are always refused.',
  ),
  allowDefaultCredentials: required(
    'RUNLAKE_ALLOW_DEFAULT_CREDENTIALS',
    Type.Boolean(),
    true,
    'Let export destinations without credentials use those that the S3 client finds on this machine: environment variables, profile, instance role. Set to false to forbid it.',
  ),

  // First start
  bootstrapApiKey: optional(
    'RUNLAKE_BOOTSTRAP_API_KEY',
    Type.String({ minLength: 16, maxLength: 255, pattern: '^[A-Za-z0-9_.-]+$' }),
    'Admin API key that the first start creates. Unset: a random key.',
    true,
  ),
  bootstrapOrganization: required(
    'RUNLAKE_BOOTSTRAP_ORGANIZATION',
    text,
    'Default',
    'Name of the organisation that the first start creates.',
  ),
  bootstrapWorkspace: required(
    'RUNLAKE_BOOTSTRAP_WORKSPACE',
    text,
    'Default',
    'Name of the workspace that the first start creates.',
  ),
  bootstrapEmail: required(
    'RUNLAKE_BOOTSTRAP_EMAIL',
    Type.String({ format: 'email' }),
    'admin@runlake.local',
    'Email address of the user that the first start creates.',
  ),

  // Limits on requests
  maxBodyBytes: required('RUNLAKE_MAX_BODY_BYTES', bytes(), 100 * MIB, 'Maximum size of a decompressed request body.'),
  maxJsonBodyBytes: required(
    'RUNLAKE_MAX_JSON_BODY_BYTES',
    bytes(64 * MIB),
    MIB,
    'Maximum body size of requests that carry no runs or feedback, such as a query or a new project.',
  ),
  maxCollectingBytes: required(
    'RUNLAKE_MAX_COLLECTING_BYTES',
    bytes(64 * 1024 ** 3),
    512 * MIB,
    'Maximum size of all ingest bodies that are being received or processed at once. Beyond it, organisations above their fair share get 503; the others may use up to a quarter more.',
  ),
  maxRunBytes: required(
    'RUNLAKE_MAX_RUN_BYTES',
    bytes(512 * MIB),
    25 * MIB,
    'Maximum size of one run event; the Kafka message and fetch sizes are derived from it.',
  ),
  maxParts: required(
    'RUNLAKE_MAX_PARTS',
    count(1, 10_000_000),
    100_000,
    'Maximum number of parts of a multipart body, runs of a JSON batch, spans of an OTLP request, and members of one JSON object in an ingest body.',
  ),
  maxJsonDepth: required('RUNLAKE_MAX_JSON_DEPTH', count(8, 1_000_000), 5_000, 'Maximum nesting depth of JSON bodies.'),
  maxUrlBytes: required('RUNLAKE_MAX_URL_BYTES', count(1024, 1_000_000), 64 * KIB, 'Maximum size of the request line.'),
  maxPageBytes: required(
    'RUNLAKE_MAX_PAGE_BYTES',
    bytes(),
    64 * MIB,
    'Maximum size of a page. A page of traced runs ends early, with a cursor; the agent server refuses a larger page, except one with a single row.',
  ),
  requestTimeoutMs: required(
    'RUNLAKE_REQUEST_TIMEOUT_MS',
    count(100, 3_600_000),
    60_000,
    'Maximum time for a request to arrive completely, in milliseconds.',
  ),
  queryTimeoutMs: required(
    'RUNLAKE_QUERY_TIMEOUT_MS',
    count(100, 3_600_000),
    30_000,
    'Timeout of each query of a read request, in milliseconds.',
  ),
  rateLimitPerKey: optional(
    'RUNLAKE_RATE_LIMIT_PER_KEY',
    count(1, 1_000_000),
    'Maximum requests per second of one API key, over all processes; further requests get 429. Unset: no limit.',
  ),
  rateLimitPerOrganization: optional(
    'RUNLAKE_RATE_LIMIT_PER_ORGANIZATION',
    count(1, 1_000_000),
    'Maximum requests per second of one organisation, over all processes; further requests get 429. Unset: no limit.',
  ),
  maxRunAgeDays: required(
    'RUNLAKE_MAX_RUN_AGE_DAYS',
    count(1, 36_500),
    1_096,
    'Maximum age of an accepted start time, in days.',
  ),
  maxRunAheadHours: required(
    'RUNLAKE_MAX_RUN_AHEAD_HOURS',
    count(0, 8_760),
    24,
    'How far in the future an accepted start time may lie, in hours.',
  ),
  patchWaitMs: required(
    'RUNLAKE_PATCH_WAIT_MS',
    count(0, 60_000),
    5_000,
    'How long a patch that carries only the run id waits for its run to appear, in milliseconds.',
  ),
  drainTimeoutMs: required(
    'RUNLAKE_DRAIN_TIMEOUT_MS',
    count(100, 600_000),
    30_000,
    'Maximum time for accepted work to finish at shutdown, in milliseconds.',
  ),

  // Ingest
  maxPendingBytes: required(
    'RUNLAKE_MAX_PENDING_BYTES',
    bytes(64 * 1024 ** 3),
    256 * MIB,
    'Maximum size of accepted events that wait for the event log; beyond it, requests get 503.',
  ),
  publishTimeoutMs: required(
    'RUNLAKE_PUBLISH_TIMEOUT_MS',
    count(100, 600_000),
    10_000,
    'Maximum time for Kafka to acknowledge the events of a request, in milliseconds for each started 16 MiB; after that the request gets 503.',
  ),
  maxFetchedBytes: required(
    'RUNLAKE_MAX_FETCHED_BYTES',
    bytes(64 * 1024 ** 3),
    256 * MIB,
    'Maximum size of events that are fetched from Kafka and not stored yet; beyond it, fetching pauses.',
  ),
  logPartitions: required(
    'RUNLAKE_LOG_PARTITIONS',
    count(1, 1_024),
    1,
    'Number of partitions of each topic of the in-process event log.',
  ),
  insertBatchRows: required(
    'RUNLAKE_INSERT_BATCH_ROWS',
    count(1, 1_000_000),
    20_000,
    'Row count at which an insert batch is complete.',
  ),
  insertBatchBytes: required(
    'RUNLAKE_INSERT_BATCH_BYTES',
    bytes(),
    64 * MIB,
    'Size at which an insert batch is complete.',
  ),
  insertBatchMs: required(
    'RUNLAKE_INSERT_BATCH_MS',
    count(10, 60_000),
    500,
    'How long a Kafka fetch waits for more events before it returns a small batch, in milliseconds.',
  ),
  traceLocationCache: required(
    'RUNLAKE_TRACE_LOCATION_CACHE',
    count(1_000, 100_000_000),
    1_000_000,
    'Number of traces whose location (project and time) the sink caches in memory.',
  ),
  deferredEventHours: required(
    'RUNLAKE_DEFERRED_EVENT_HOURS',
    count(1, 8_760),
    24,
    'How long an event is deferred while its trace is unknown before it goes to the dead-letter queue, in hours.',
  ),

  // Usage
  rollupIntervalMs: required(
    'RUNLAKE_ROLLUP_INTERVAL_MS',
    count(50, 60_000),
    1_000,
    'Maximum pause between two roll-up runs of the usage counts, in milliseconds.',
  ),
  maxUsageWorkspaces: required(
    'RUNLAKE_MAX_USAGE_WORKSPACES',
    count(1, 10_000),
    200,
    'Maximum number of workspace ids in one usage request.',
  ),
  usageCacheBytes: required(
    'RUNLAKE_USAGE_CACHE_BYTES',
    count(0, 16 * 1024 ** 3),
    32 * MIB,
    'Maximum size of the in-memory cache of usage counts, which is invalidated when the counts change; 0 disables it.',
  ),

  // Bulk export
  ...exportSettings,

  // Agent server
  ...agentSettings,

  // Limits per organisation
  ...limitSettings,

  // Traces of Runlake itself, with the standard variables of OpenTelemetry
  otlpTracesEndpoint: optional(
    'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    web,
    'OTLP/HTTP endpoint for traces of Runlake itself, used as given. If neither this variable nor OTEL_EXPORTER_OTLP_ENDPOINT is set, tracing is off.',
    true,
  ),
  otlpEndpoint: optional(
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    web,
    'Base URL of the OTLP/HTTP endpoint for traces of Runlake itself; `/v1/traces` is appended.',
    true,
  ),
  otlpHeaders: optional(
    'OTEL_EXPORTER_OTLP_HEADERS',
    Type.String({ pattern: '^[^=,]+=[^,]*(?:,[^=,]+=[^,]*)*$' }),
    'Headers of trace export requests, as name=value,name=value with percent-encoded values.',
    true,
  ),
  serviceName: required('OTEL_SERVICE_NAME', text, 'runlake', 'Service name in exported traces.'),
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
    'Sampler of request traces. The `parentbased_` samplers follow the sampling decision of the caller and apply the rest of their name to requests without one.',
  ),
  tracesSamplerArg: required(
    'OTEL_TRACES_SAMPLER_ARG',
    Type.String({ pattern: '^(?:0(?:\\.\\d+)?|1(?:\\.0+)?)$' }),
    '1',
    'Share of requests that the `traceidratio` samplers trace, from 0 to 1.',
  ),
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof settings;

type ValueOf<N extends SettingName> = (typeof settings)[N]['fallback'] extends undefined
  ? Static<(typeof settings)[N]['schema']> | undefined
  : Static<(typeof settings)[N]['schema']>;

/** The whole configuration, frozen. */
export type Config = { readonly [N in SettingName]: ValueOf<N> };
