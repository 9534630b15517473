/**
 * Constants that are not settings but that tests vary. Each is a key of `Config`, so that a test passes another value
 * to the code that uses it; tests that start processes use the variable RUNLAKE_TEST_SETTINGS (see `load.ts`).
 */
export const internals = {
  // Kafka and ingest

  /** Without heartbeats for this long, a consumer loses its partitions. Brokers usually accept 6 s to 30 min. */
  kafkaSessionTimeoutMs: 15_000,
  /**
   * How long Kafka may take to acknowledge the events of a request before the request gets 503, per 16 MiB, rounded up.
   */
  publishTimeoutMs: 10_000,
  /** Row count that completes an insert batch: large enough for ClickHouse, which prefers few and large inserts. */
  insertBatchRows: 20_000,
  /** Size that completes an insert batch, so that large runs do not make a batch of gigabytes. */
  insertBatchBytes: 64 * 1024 ** 2,
  /**
   * How long a Kafka fetch waits for more events before it returns a small batch. It delays the time at which new runs
   * become readable.
   */
  insertBatchMs: 500,
  /** Maximum pause between two roll-up runs of the usage counts. It limits how old usage reports are. */
  rollupIntervalMs: 1_000,
  /**
   * How long a patch that carries only the run id waits for its run to appear, because the post may arrive after the
   * patch.
   */
  patchWaitMs: 5_000,

  // Requests

  /** Maximum body size of requests that carry no runs or feedback, such as a query or a new project. */
  maxJsonBodyBytes: 1024 ** 2,
  /** Maximum number of parts of a multipart body, runs of a JSON batch, spans, and members of one JSON object. */
  maxParts: 100_000,
  /** Maximum nesting depth of JSON bodies, which bounds recursion. */
  maxJsonDepth: 5_000,
  /**
   * Maximum size of a page. A page of traced runs ends early, with a cursor. The agent server refuses a larger page
   * unless it is one row.
   */
  maxPageBytes: 64 * 1024 ** 2,
  /** Maximum time for a request to arrive completely. */
  requestTimeoutMs: 60_000,
  /** Timeout of each query of a read request. */
  queryTimeoutMs: 30_000,
  /** Maximum time for accepted work to finish at shutdown: the time that Kubernetes grants before it kills a pod. */
  drainTimeoutMs: 30_000,

  // Bulk export

  /** Delay before an export run is retried. */
  exportRetryDelayMs: 30_000,
  /** Delay between the end of an interval and its scheduled bulk export, so that late events arrive first. */
  exportScheduleDelayMs: 600_000,
  /** Interval at which bulk exports are checked for due schedules, timeouts and missing jobs. */
  exportSweepMs: 5_000,
  /** A worker without heartbeats for this long loses its export run. */
  exportLeaseMs: 15_000,
  /** Number of runs after which a bulk export starts another file. */
  exportSliceRows: 240_000,

  // Agent server

  /** Timeout for deriving the schemas of one graph from its TypeScript types, in the background; 0 disables it. */
  agentsTypesSeconds: 120,
  /** How long a process that runs graph code may be unresponsive before it is replaced. */
  agentsHeartbeatTimeoutMs: 10_000,
  /**
   * Without heartbeats for this long, another process takes over a graph run. Heartbeats are sent three times in this
   * time.
   */
  agentsLeaseMs: 15_000,
  /** How long a stream may be silent before a keep-alive comment; proxies close idle connections after 30 to 60 s. */
  agentsHeartbeatMs: 5_000,
  /** Timeout for the app of `http.app` to start a response, and then for each further chunk. */
  agentsAppTimeoutMs: 300_000,
  /** Lets POST /internal/truncate delete all runs, threads and assistants of the deployment; tests only. */
  agentsAllowTruncate: false,
  /** Maximum number of child runs (nodes, model calls, tools) that the trace of one graph run contains. */
  agentsTraceChildRuns: 10_000,

  // Maximum number of organisations, and of resources per organisation: far above normal use, to contain a runaway
  // tenant.

  maxOrganizations: 1_000,
  maxWorkspaces: 10_000,
  maxMembers: 100_000,
  /** Keys that are neither revoked nor expired. `runlake keys create` ignores this limit. */
  maxApiKeys: 10_000,
  /** Tracing projects, including those that traces create. */
  maxProjects: 100_000,
  exportMaxDestinations: 1_000,
  /** Scheduled bulk exports that are not cancelled. */
  exportMaxSchedules: 1_000,
  /** Waiting and running bulk exports. Exports that a schedule creates do not count and are never refused. */
  exportMaxUnfinished: 10_000,
} as const satisfies Record<string, number | boolean>;

/** Shares of RUNLAKE_MEMORY_BYTES. The first three are buffers of one process. */
export const memoryShares = {
  /**
   * Ingest bodies that are being received or processed. Beyond this share, organisations above their fair share get
   * 503.
   */
  maxCollectingBytes: 1 / 2,
  /** Accepted events that wait for the event log. Beyond this share, requests get 503. */
  maxPendingBytes: 1 / 4,
  /**
   * Events that are fetched from Kafka and not stored yet. Beyond this share, fetching pauses. The process needs about
   * three times as much for them: the containers of inserts, records as objects, and what the allocator keeps.
   */
  maxFetchedBytes: 1 / 16,
  /** Buffers of one encoder process of bulk exports. The process needs about 200 MB in addition. */
  exportEncoderBytes: 1 / 4,
  /**
   * Events that one process that runs graph code buffers. Beyond this share, the run with the most buffered events
   * fails.
   */
  agentsWorkerBufferBytes: 1 / 4,
} as const;

type Internals = typeof internals;

/** Value of each constant by its key of `Config`, widened because tests vary them. */
export type InternalConfig = {
  readonly [N in keyof Internals]: Internals[N] extends boolean ? boolean : number;
} & { readonly [N in keyof typeof memoryShares]: number };
