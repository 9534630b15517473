import { type Static, Type } from 'typebox';
import { agentSettings } from './agent-settings.ts';
import { deploymentSettings } from './deployment-settings.ts';
import { exportSettings } from './export-settings.ts';
import type { AgentsRevision } from './graph-environment.ts';
import type { InternalConfig } from './internals.ts';
import { bytes, count, MIB, optional, origins, required, type Setting, text, url, urls } from './setting.ts';

export type { Setting } from './setting.ts';

const web = url('http', 'https');

/** Every setting of Runlake, at most 78. Only `infra/config` reads the environment. */
export const settings = {
  // Addresses and folders
  dataDir: required('RUNLAKE_DATA_DIR', text, '.runlake', 'Folder for the embedded engines and for work files.'),
  host: required('RUNLAKE_HOST', text, '127.0.0.1', 'Listen address of the main API.'),
  port: required('RUNLAKE_PORT', count(0, 65535), 1984, 'Port of the main API; 0 picks a free port.'),
  metricsHost: required(
    'RUNLAKE_METRICS_HOST',
    text,
    '127.0.0.1',
    'Listen address for metrics and readiness of the roles ingest, exports, agents and tools.',
  ),
  metricsPort: required(
    'RUNLAKE_METRICS_PORT',
    count(0, 65535),
    9464,
    'Port for metrics and readiness of the roles ingest, exports, agents and tools; 0 picks a free port.',
  ),
  serveMetrics: required(
    'RUNLAKE_SERVE_METRICS',
    Type.Boolean(),
    false,
    'Serve /metrics on the ports of the main API, the agent server and the tool server. The endpoint needs no API key: anyone who can reach the port can read it.',
  ),
  publicUrl: optional(
    'RUNLAKE_PUBLIC_URL',
    web,
    'URL under which clients reach the main API; used for links in responses. Unset: the host of each request.',
    true,
  ),
  trustedProxies: optional(
    'RUNLAKE_TRUSTED_PROXIES',
    text,
    'Addresses and networks of proxies in front of Runlake, separated by commas, such as 10.0.0.0/8. For their requests, X-Forwarded-For gives the client address, by which sign-ins are limited and which the audit log contains, and X-Forwarded-Proto the protocol. Unset: the address of the connection.',
  ),
  // Sign-in of members
  oidcIssuer: optional(
    'RUNLAKE_OIDC_ISSUER',
    web,
    "Issuer of the OpenID Connect provider through which members of the first organisation, the operator's, sign in; its metadata is read from /.well-known/openid-configuration there. Unset: members sign in with API keys only.",
  ),
  oidcClientId: optional('RUNLAKE_OIDC_CLIENT_ID', text, 'Client id at the OpenID Connect provider.'),
  oidcClientSecret: optional(
    'RUNLAKE_OIDC_CLIENT_SECRET',
    text,
    'Client secret at the OpenID Connect provider. Unset: a public client.',
    true,
  ),
  oidcRoleClaim: required(
    'RUNLAKE_OIDC_ROLE_CLAIM',
    text,
    'roles',
    'Claim of the ID token or of the user info that gives the role of a member: a text or a list of texts.',
  ),
  oidcRoles: optional(
    'RUNLAKE_OIDC_ROLES',
    Type.String({ pattern: '^[^=,]+=(?:admin|editor|viewer)(?:,[^=,]+=(?:admin|editor|viewer))*$' }),
    'Roles by value of the claim, as runlake-admins=admin,staff=editor,*=viewer; `*` is any member. The most powerful role applies. Unset: the values are the names of the roles.',
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
    urls('http', 'https'),
    'ClickHouse, as http(s)://user:password@host:port/database. Of a cluster, the URLs of all servers, separated by commas. Unset: the embedded ClickHouse.',
    true,
  ),
  clickhouseCluster: optional(
    'RUNLAKE_CLICKHOUSE_CLUSTER',
    Type.String({ pattern: '^[A-Za-z0-9_.-]{1,64}$' }),
    'Name of the ClickHouse cluster (in system.clusters) that stores the tables: distributed over its shards, replicated within each shard. Cannot be changed once tables exist. Unset: plain tables on one server.',
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
    'PEM file with additional certificate authorities, trusted for connections to all servers, in addition to the authorities built into Node.',
  ),
  secretKey: optional(
    'RUNLAKE_SECRET_KEY',
    // No commas: the key may later be listed in RUNLAKE_FORMER_SECRET_KEYS, where commas separate keys.
    Type.String({ minLength: 16, maxLength: 1024, pattern: '^[^\\s,][^,]*[^\\s,]$' }),
    'Key that encrypts stored secrets: credentials of destinations, secrets of workspaces and deployments, OAuth tokens and the tokens of shares. At least 16 characters, no commas. Unset: with embedded engines, a key is generated and kept in the data folder; otherwise required.',
    true,
  ),
  formerSecretKeys: optional(
    'RUNLAKE_FORMER_SECRET_KEYS',
    text,
    'Earlier values of RUNLAKE_SECRET_KEY, separated by commas; secrets that were encrypted with them stay readable.',
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
    'Allow export endpoints, webhooks and OAuth providers on loopback and private addresses, and OAuth providers without TLS. Link-local addresses and credential (metadata) endpoints are always refused.',
  ),
  allowDefaultCredentials: required(
    'RUNLAKE_ALLOW_DEFAULT_CREDENTIALS',
    Type.Boolean(),
    true,
    'Let export destinations without credentials use those that the S3 client finds on this machine: environment variables, profile, instance role. Set to false to forbid it.',
  ),
  sharePublicPrompts: required(
    'RUNLAKE_SHARE_PUBLIC_PROMPTS',
    Type.Boolean(),
    false,
    'Let every API key of the installation read public prompts, agents and skills, also those of other organisations. If false, only keys of their workspace can read them.',
  ),

  // First start
  bootstrapApiKey: optional(
    'RUNLAKE_BOOTSTRAP_API_KEY',
    Type.String({ minLength: 16, maxLength: 255, pattern: '^[A-Za-z0-9_.-]+$' }),
    'Admin API key that a start creates, unless it exists. Unset: the first start creates a random key.',
    true,
  ),

  // Limits
  memoryBytes: required(
    'RUNLAKE_MEMORY_BYTES',
    Type.Integer({ minimum: 256 * MIB, maximum: 256 * 1024 * MIB }),
    1024 * MIB,
    'Memory budget of one process, from which its buffers get fixed shares: half for request bodies that are being received or processed and for large responses, a quarter for accepted events that wait for the event log or, without Kafka, for the sink, a sixteenth for events fetched from Kafka and not stored yet, which need about three times as much. Beyond a share, requests get 503, or 413 if they would never fit, or fetching pauses. On top come the code and heap of the process. Each encoder process of bulk exports and each process that runs graph code may buffer another quarter.',
  ),
  maxBodyBytes: required(
    'RUNLAKE_MAX_BODY_BYTES',
    bytes(),
    100 * MIB,
    'Maximum size of a decompressed request body, and of what one request copies into examples of a dataset.',
  ),
  maxRunBytes: required(
    'RUNLAKE_MAX_RUN_BYTES',
    bytes(512 * MIB),
    25 * MIB,
    'Maximum size of one run event; the Kafka message and fetch sizes are derived from it.',
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

  // Retention
  retentionShortlivedDays: optional(
    'RUNLAKE_RETENTION_SHORTLIVED_DAYS',
    count(1, 36_500),
    'Days that traces of the tier `shortlived` are kept, from the start of the trace. Applies to traces that are stored from then on. Unset: as long as the others.',
  ),
  retentionLonglivedDays: optional(
    'RUNLAKE_RETENTION_LONGLIVED_DAYS',
    count(1, 36_500),
    'Days that all other traces are kept: those of the tier `longlived`, of projects without a tier, and traces with feedback. Unset: forever.',
  ),

  // Bulk export
  ...exportSettings,

  // Agent server
  ...agentSettings,

  // Deployments
  ...deploymentSettings,

  // Tool server
  toolsHost: required('RUNLAKE_TOOLS_HOST', text, '127.0.0.1', 'Listen address of the tool server.'),
  toolsPort: required('RUNLAKE_TOOLS_PORT', count(0, 65535), 8000, 'Port of the tool server; 0 picks a free port.'),
  toolsCorsOrigins: optional(
    'RUNLAKE_TOOLS_CORS_ORIGINS',
    origins,
    'Origins that may call the tool server from a browser, as https://a.example,https://b.example, or `*` for all. Unset: the loopback origins (localhost, 127.0.0.0/8, [::1]).',
  ),
  toolsEndpoints: optional(
    'RUNLAKE_TOOLS_ENDPOINTS',
    urls('http', 'https'),
    'Addresses of other installations that clients of the tool server may name in LANGSMITH-ENDPOINT, separated by commas; their API keys are sent there. Unset: none.',
  ),

  // Traces of Runlake itself. The SDK reads all other standard variables of OpenTelemetry by itself.
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
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof settings;

type SettingValue<N extends SettingName> = (typeof settings)[N]['fallback'] extends undefined
  ? Static<(typeof settings)[N]['schema']> | undefined
  : Static<(typeof settings)[N]['schema']>;

/** The complete, frozen configuration: the settings, and the constants that tests change. */
export type Config = { readonly [N in SettingName]: SettingValue<N> } & InternalConfig & {
    /**
     * Revision of `agentsDeployment` that the agent server runs; it executes runs only while this is the active revision.
     * Undefined outside of replicas: it always executes runs.
     */
    readonly agentsRevision: AgentsRevision | undefined;
  };
