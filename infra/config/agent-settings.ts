import { Type } from 'typebox';
import { bytes, count, MIB, optional, required, type Setting, text, url } from './setting.ts';

const hourMs = 3_600_000;

/** Settings of the agent server, which runs graphs. */
export const agentSettings = {
  agentsFile: optional(
    'RUNLAKE_AGENTS_FILE',
    text,
    'Path of the langgraph.json that declares the graphs. Unset: no agent server is started.',
  ),
  agentsHost: required('RUNLAKE_AGENTS_HOST', text, '127.0.0.1', 'Listen address of the agent server.'),
  agentsPort: required('RUNLAKE_AGENTS_PORT', count(0, 65535), 2024, 'Port of the agent server; 0 picks a free port.'),
  agentsPublicUrl: optional(
    'RUNLAKE_AGENTS_PUBLIC_URL',
    url('http', 'https'),
    'URL under which clients reach the agent server, for example behind a proxy; used in agent cards. Unset: the host of each request.',
  ),
  agentsOrganization: optional(
    'RUNLAKE_AGENTS_ORGANIZATION',
    Type.String({ format: 'uuid' }),
    'Organisation that owns the agent server, which is the default deployment of its first workspace. Unset: the oldest organisation.',
  ),
  agentsDeployment: optional(
    'RUNLAKE_AGENTS_DEPLOYMENT',
    Type.String({ format: 'uuid' }),
    'Deployment that the agent server serves, by its id in the table `agents.deployments`; only API keys with access to its workspace are accepted. Unset: the default deployment of the organisation.',
  ),
  agentsCorsOrigins: optional(
    'RUNLAKE_AGENTS_CORS_ORIGINS',
    Type.String({ pattern: '^(?:\\*|https?://[^\\s,/]+(?:,\\s*https?://[^\\s,/]+)*)$' }),
    'Origins that may call the agent server from a browser, as https://a.example,https://b.example, or `*` for all. Unset: `http.cors` of the langgraph.json, or without it the loopback origins (localhost, 127.0.0.0/8, [::1]).',
  ),
  agentsDatabaseUrl: optional(
    'RUNLAKE_AGENTS_DATABASE_URL',
    url('postgres', 'postgresql'),
    'Postgres URL for the processes that run graph code. Use an account that can access only the state and store tables in the schema `agents`, limited to one deployment by a row in `agents.graph_accounts`. Unset: Runlake creates such an account at each start, if it has the permission.',
    true,
  ),
  agentsIsolation: required(
    'RUNLAKE_AGENTS_ISOLATION',
    Type.Union([Type.Literal('auto'), Type.Literal('required'), Type.Literal('off')]),
    'auto',
    'Whether each process that runs graph code gets its own user id, which cannot read the secrets of Runlake; this needs Linux and a start as root. `auto`: if possible; `required`: otherwise Runlake does not start; `off`: graph code is as trusted as the operator.',
  ),
  agentsWorkers: required(
    'RUNLAKE_AGENTS_WORKERS',
    count(0, 1_024),
    0,
    'Number of processes that run graph code; 0 means one for each CPU core.',
  ),
  agentsRunsPerWorker: required(
    'RUNLAKE_AGENTS_RUNS_PER_WORKER',
    count(1, 10_000),
    16,
    'Maximum number of concurrent runs in one process that runs graph code. A quarter more, rounded down, is reserved for callers below their fair share when all are in use.',
  ),
  agentsWorkerHeapMegabytes: optional(
    'RUNLAKE_AGENTS_WORKER_HEAP_MB',
    count(64, 1_048_576),
    'Maximum heap of each process that runs graph code, in megabytes. Unset: the default of Node.',
  ),
  agentsTypesSeconds: required(
    'RUNLAKE_AGENTS_TYPES_SECONDS',
    count(0, 3_600),
    120,
    'Timeout for deriving the schemas of one graph from its TypeScript types, which happens in the background after the start, in seconds; 0 disables it.',
  ),
  agentsTypesHeapMegabytes: required(
    'RUNLAKE_AGENTS_TYPES_HEAP_MB',
    count(64, 1_048_576),
    1_024,
    'Maximum heap of the process that derives schemas from TypeScript types, in megabytes.',
  ),
  agentsMaxBodyBytes: required(
    'RUNLAKE_AGENTS_MAX_BODY_BYTES',
    bytes(),
    16 * MIB,
    'Maximum size of a request body of the agent server.',
  ),
  agentsMaxEventBytes: required(
    'RUNLAKE_AGENTS_MAX_EVENT_BYTES',
    bytes(512 * MIB),
    8 * MIB,
    'Maximum size of one event that a graph streams.',
  ),
  agentsWorkerBufferBytes: required(
    'RUNLAKE_AGENTS_WORKER_BUFFER_BYTES',
    bytes(),
    256 * MIB,
    'Maximum size of the events that one process that runs graph code buffers while they wait to be stored; beyond it, the run with the most buffered events fails.',
  ),
  agentsRunTimeoutMs: required(
    'RUNLAKE_AGENTS_RUN_TIMEOUT_MS',
    count(100, 30 * 24 * hourMs),
    hourMs,
    'Timeout of one attempt of a run, in milliseconds; after it the run ends with the status timeout.',
  ),
  agentsSilentMs: required(
    'RUNLAKE_AGENTS_SILENT_MS',
    count(100, hourMs),
    10_000,
    'How long a process that runs graph code may be unresponsive before it is replaced, in milliseconds.',
  ),
  agentsLeaseMs: required(
    'RUNLAKE_AGENTS_LEASE_MS',
    count(500, hourMs),
    15_000,
    'Lease duration of a run, in milliseconds: if its process renews no heartbeat for this long, another process takes the run over. Heartbeats are renewed three times per lease.',
  ),
  agentsHeartbeatMs: required(
    'RUNLAKE_AGENTS_HEARTBEAT_MS',
    count(50, 60_000),
    5_000,
    'How long a stream may be silent before the agent server sends a keep-alive comment, in milliseconds.',
  ),
  agentsStreamHours: required(
    'RUNLAKE_AGENTS_STREAM_HOURS',
    count(1, 8_760),
    24,
    'Retention of the events of resumable streams, in hours.',
  ),
  agentsMaxCrons: required('RUNLAKE_AGENTS_MAX_CRONS', count(0, 1_000_000), 10_000, 'Maximum number of crons.'),
  agentsWebhookSecret: optional(
    'RUNLAKE_AGENTS_WEBHOOK_SECRET',
    Type.String({ minLength: 16, maxLength: 1024 }),
    'Secret that signs webhooks; at least 16 characters. Unset: derived from RUNLAKE_SECRET_KEY.',
    true,
  ),
  agentsResumeSeconds: required(
    'RUNLAKE_AGENTS_RESUME_SECONDS',
    count(0, 86_400),
    120,
    'How long clients can rejoin the stream of a resumable run without a thread after the run has ended, in seconds.',
  ),
  agentsAppTimeoutMs: required(
    'RUNLAKE_AGENTS_APP_TIMEOUT_MS',
    count(100, 24 * hourMs),
    300_000,
    'Timeout for the app of `http.app` to start a response, and then for each further chunk, in milliseconds.',
  ),
  agentsFeedbackHours: required(
    'RUNLAKE_AGENTS_FEEDBACK_HOURS',
    count(1, 8_760),
    24,
    'Lifetime of the feedback links that runs with `feedback_keys` return, from the end of the run, in hours. The links point to RUNLAKE_PUBLIC_URL.',
  ),
  agentsAllowTruncate: required(
    'RUNLAKE_AGENTS_ALLOW_TRUNCATE',
    Type.Boolean(),
    false,
    'Let POST /internal/truncate delete all runs, threads and assistants of the organisation. For tests only.',
  ),
  agentsTraceStatelessValues: required(
    'RUNLAKE_AGENTS_TRACE_STATELESS_VALUES',
    Type.Boolean(),
    false,
    'Store inputs and outputs of runs without a thread in their traces.',
  ),
  agentsTraceChildRuns: required(
    'RUNLAKE_AGENTS_TRACE_CHILD_RUNS',
    count(0, 1_000_000),
    10_000,
    'Maximum number of child runs (nodes, model calls, tools) that the trace of one graph run contains; 0 means none. If LANGSMITH_TRACING is set in its environment, a project sends its own (true) or none (false).',
  ),
  agentsTraceChildBytes: required(
    'RUNLAKE_AGENTS_TRACE_CHILD_BYTES',
    bytes(),
    64 * MIB,
    'Maximum size of the inputs and outputs of all child runs of one graph run; beyond it, they are left out of the trace.',
  ),
} as const satisfies Record<string, Setting>;
