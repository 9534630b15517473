import { Type } from 'typebox';
import { bytes, count, MIB, optional, required, type Setting, text, url } from './setting.ts';

const hourMs = 3_600_000;

/** The agent server, which runs graphs. */
export const agentSettings = {
  agentsFile: optional(
    'RUNLAKE_AGENTS_FILE',
    text,
    'Path of the langgraph.json that names the graphs. Unset: there is no agent server.',
  ),
  agentsHost: required('RUNLAKE_AGENTS_HOST', text, '127.0.0.1', 'Address on which the agent server listens.'),
  agentsPort: required('RUNLAKE_AGENTS_PORT', count(0, 65535), 2024, 'Port of the agent server; 0 takes a free one.'),
  agentsPublicUrl: optional(
    'RUNLAKE_AGENTS_PUBLIC_URL',
    url('http', 'https'),
    'Address under which clients reach the agent server, for the cards of its agents, such as behind a proxy. Unset: the host that a request names.',
  ),
  agentsOrganization: optional(
    'RUNLAKE_AGENTS_ORGANIZATION',
    Type.String({ format: 'uuid' }),
    'The organisation that the agent server belongs to, as its default deployment in its first workspace. Unset: the organisation that was created first.',
  ),
  agentsDeployment: optional(
    'RUNLAKE_AGENTS_DEPLOYMENT',
    Type.String({ format: 'uuid' }),
    'The deployment that the agent server serves, by its id in the table `agents.deployments`; only keys that reach its workspace are let in. Unset: the default deployment of the organisation.',
  ),
  agentsCorsOrigins: optional(
    'RUNLAKE_AGENTS_CORS_ORIGINS',
    Type.String({ pattern: '^(?:\\*|https?://[^\\s,/]+(?:,\\s*https?://[^\\s,/]+)*)$' }),
    'Origins whose pages may call the agent server, as https://a.example,https://b.example, or `*` for all. Unset: those of `http.cors` in the langgraph.json, else the loopback origins (localhost, 127.0.0.0/8, [::1]).',
  ),
  agentsDatabaseUrl: optional(
    'RUNLAKE_AGENTS_DATABASE_URL',
    url('postgres', 'postgresql'),
    'Postgres as the processes that run graph code reach it, best with an account that is kept to the tables of state and store in the schema `agents`, and to a deployment by a row in `agents.graph_accounts`. Unset: with an account of that kind that is made at each start, if Runlake may make accounts.',
    true,
  ),
  agentsIsolation: required(
    'RUNLAKE_AGENTS_ISOLATION',
    Type.Union([Type.Literal('auto'), Type.Literal('required'), Type.Literal('off')]),
    'auto',
    'Whether each process that runs graph code gets a user id of its own, which cannot read secrets of Runlake; that needs Linux and a start as root. `auto`: where possible; `required`: else Runlake does not start; `off`: graph code is as trusted as the operator.',
  ),
  agentsWorkers: required(
    'RUNLAKE_AGENTS_WORKERS',
    count(0, 1_024),
    0,
    'Processes that run graph code; 0 makes as many as there are processor cores.',
  ),
  agentsRunsPerWorker: required(
    'RUNLAKE_AGENTS_RUNS_PER_WORKER',
    count(1, 10_000),
    16,
    'Maximum number of runs that one process that runs graph code has at once. A quarter more, rounded down, is for callers below their share while all are used.',
  ),
  agentsWorkerHeapMegabytes: optional(
    'RUNLAKE_AGENTS_WORKER_HEAP_MB',
    count(64, 1_048_576),
    'Largest heap of each process that runs graph code, in megabytes. Unset: as Node decides.',
  ),
  agentsTypesSeconds: required(
    'RUNLAKE_AGENTS_TYPES_SECONDS',
    count(0, 3_600),
    120,
    'Longest time for reading the schemas of one graph from its TypeScript types, in the background after the start, in seconds; 0: they are not read.',
  ),
  agentsTypesHeapMegabytes: required(
    'RUNLAKE_AGENTS_TYPES_HEAP_MB',
    count(64, 1_048_576),
    1_024,
    'Largest heap of the process that reads schemas from TypeScript types, in megabytes.',
  ),
  agentsMaxBodyBytes: required(
    'RUNLAKE_AGENTS_MAX_BODY_BYTES',
    bytes(),
    16 * MIB,
    'Largest body of a request to the agent server.',
  ),
  agentsMaxEventBytes: required(
    'RUNLAKE_AGENTS_MAX_EVENT_BYTES',
    bytes(512 * MIB),
    8 * MIB,
    'Largest event that a graph may stream.',
  ),
  agentsWorkerBufferBytes: required(
    'RUNLAKE_AGENTS_WORKER_BUFFER_BYTES',
    bytes(),
    256 * MIB,
    'Maximum size of the events that one process that runs graph code holds back because they are not stored as fast as graphs stream them; beyond, the run that holds most of them fails.',
  ),
  agentsRunTimeoutMs: required(
    'RUNLAKE_AGENTS_RUN_TIMEOUT_MS',
    count(100, 30 * 24 * hourMs),
    hourMs,
    'Longest time of one attempt of a run, in milliseconds; beyond, it ends as timeout.',
  ),
  agentsSilentMs: required(
    'RUNLAKE_AGENTS_SILENT_MS',
    count(100, hourMs),
    10_000,
    'How long a process that runs graph code may be silent before it is replaced, in milliseconds.',
  ),
  agentsLeaseMs: required(
    'RUNLAKE_AGENTS_LEASE_MS',
    count(500, hourMs),
    15_000,
    'How long a run stays with a process that gives no sign of life before another takes it over, in milliseconds. A third of it is how often signs are given.',
  ),
  agentsHeartbeatMs: required(
    'RUNLAKE_AGENTS_HEARTBEAT_MS',
    count(50, 60_000),
    5_000,
    'How long a stream is silent before a comment goes out that keeps it open, in milliseconds.',
  ),
  agentsStreamHours: required(
    'RUNLAKE_AGENTS_STREAM_HOURS',
    count(1, 8_760),
    24,
    'How long events of resumable streams are kept, in hours.',
  ),
  agentsMaxCrons: required('RUNLAKE_AGENTS_MAX_CRONS', count(0, 1_000_000), 10_000, 'Most crons that there may be.'),
  agentsWebhookSecret: optional(
    'RUNLAKE_AGENTS_WEBHOOK_SECRET',
    Type.String({ minLength: 16, maxLength: 1024 }),
    'What webhooks are signed with; 16 characters or more. Unset: derived from RUNLAKE_SECRET_KEY.',
    true,
  ),
  agentsResumeSeconds: required(
    'RUNLAKE_AGENTS_RESUME_SECONDS',
    count(0, 86_400),
    120,
    'How long the stream of a resumable run without a thread can be come back to after its end, in seconds.',
  ),
  agentsAppTimeoutMs: required(
    'RUNLAKE_AGENTS_APP_TIMEOUT_MS',
    count(100, 24 * hourMs),
    300_000,
    'How long the app of http.app has to begin an answer, and then for each further piece of it, in milliseconds.',
  ),
  agentsFeedbackHours: required(
    'RUNLAKE_AGENTS_FEEDBACK_HOURS',
    count(1, 8_760),
    24,
    'How long the links work that runs with feedback_keys end with, from the end of the run, in hours. They lead to RUNLAKE_PUBLIC_URL.',
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
    'Keep inputs and outputs of runs without a thread in their traces.',
  ),
  agentsTraceChildRuns: required(
    'RUNLAKE_AGENTS_TRACE_CHILD_RUNS',
    count(0, 1_000_000),
    10_000,
    'Most nodes, model calls, tools and other runs inside of one run of a graph that its trace holds; 0: none. With LANGSMITH_TRACING in its environment a project sends its own (true) or none (false).',
  ),
  agentsTraceChildBytes: required(
    'RUNLAKE_AGENTS_TRACE_CHILD_BYTES',
    bytes(),
    64 * MIB,
    'Inputs and outputs of all runs inside of one run of a graph; beyond, they are left out of its trace.',
  ),
} as const satisfies Record<string, Setting>;
