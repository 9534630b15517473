import { Type } from 'typebox';
import { bytes, count, MIB, optional, origins, required, type Setting, text, url } from './setting.ts';

const hourMs = 3_600_000;

/** Settings of the agent server, which executes graphs. */
export const agentSettings = {
  agentsFile: optional(
    'RUNLAKE_AGENTS_FILE',
    text,
    'Path of the langgraph.json that declares the graphs. Unset: only the agent servers of deployments are started.',
  ),
  agentsHost: required('RUNLAKE_AGENTS_HOST', text, '127.0.0.1', 'Listen address of the agent server.'),
  agentsPort: required('RUNLAKE_AGENTS_PORT', count(0, 65535), 2024, 'Port of the agent server; 0 picks a free port.'),
  agentsPublicUrl: optional(
    'RUNLAKE_AGENTS_PUBLIC_URL',
    url('http', 'https'),
    'URL under which clients reach the agent server, for example behind a proxy; used in agent cards. Unset: the host of each request.',
  ),
  agentsDeployment: optional(
    'RUNLAKE_AGENTS_DEPLOYMENT',
    Type.String({ format: 'uuid' }),
    'Deployment that the agent server serves, by its id in the table `agents.deployments`; only API keys with access to its workspace are accepted. The id of an organisation names its default deployment, which belongs to its first workspace. Unset: the default deployment of the oldest organisation.',
  ),
  agentsCorsOrigins: optional(
    'RUNLAKE_AGENTS_CORS_ORIGINS',
    origins,
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
  agentsMaxBodyBytes: required(
    'RUNLAKE_AGENTS_MAX_BODY_BYTES',
    bytes(),
    16 * MIB,
    'Maximum size of a request body of the agent server; bodies that only search have at most 1 MiB.',
  ),
  agentsRunTimeoutMs: required(
    'RUNLAKE_AGENTS_RUN_TIMEOUT_MS',
    // The longest time of a timer of Node, 24.8 days.
    count(100, 2_147_483_647),
    hourMs,
    'Timeout of one attempt of a run, in milliseconds; after it the run ends with the status timeout.',
  ),
  agentsAllowTruncate: required(
    'RUNLAKE_AGENTS_ALLOW_TRUNCATE',
    Type.Boolean(),
    false,
    'Let POST /internal/truncate delete all runs, threads and assistants of the deployment. For test suites only.',
  ),
  agentsStreamHours: required(
    'RUNLAKE_AGENTS_STREAM_HOURS',
    count(1, 8_760),
    24,
    'Retention of the events of resumable streams, in hours.',
  ),
  agentsWebhookSecret: optional(
    'RUNLAKE_AGENTS_WEBHOOK_SECRET',
    Type.String({ minLength: 16, maxLength: 1024 }),
    'Secret that signs webhooks; at least 16 characters. Unset: derived from RUNLAKE_SECRET_KEY.',
    true,
  ),
} as const satisfies Record<string, Setting>;
