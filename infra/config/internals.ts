/**
 * Constants that are not settings but that tests change. Each constant is a key of `Config`. A test passes a different
 * value to the code that uses the constant; tests that start processes use the variable RUNLAKE_TEST_SETTINGS (see
 * `load.ts`).
 */
export const internals = {
  // Kafka and ingest

  /** Time without heartbeats after which a consumer loses its partitions. Brokers usually accept 6 s to 30 min. */
  kafkaSessionTimeoutMs: 15_000,
  /**
   * Maximum time for Kafka to acknowledge the events of a request, per 16 MiB, rounded up. After this time, the request
   * gets 503.
   */
  publishTimeoutMs: 10_000,
  /** Number of rows that completes an insert batch. It is large, because ClickHouse prefers few large inserts. */
  insertBatchRows: 20_000,
  /** Size that completes an insert batch. It prevents batches of several gigabytes if the runs are large. */
  insertBatchBytes: 64 * 1024 ** 2,
  /**
   * Maximum time that a Kafka fetch waits for more events before it returns a small batch. It delays the time at which
   * new runs become readable.
   */
  insertBatchMs: 500,
  /** Maximum pause between two roll-up runs of the usage counts. It limits the age of usage reports. */
  rollupIntervalMs: 1_000,
  /**
   * Time that a request waits for what it names only by id, such as a patch for its run and a post for its parent. The
   * other request may arrive later, or another process may have accepted it. If it is not found, the request waits as long
   * again for accepted events to be stored.
   */
  patchWaitMs: 5_000,

  // Requests

  /** Maximum body size of requests that contain no runs or feedback, such as queries or new projects. */
  maxJsonBodyBytes: 1024 ** 2,
  /**
   * Maximum number of parts in a multipart body, of runs in a JSON batch, of spans, and of members in one JSON object.
   */
  maxParts: 100_000,
  /** Maximum nesting depth of JSON bodies. It limits recursion. */
  maxJsonDepth: 5_000,
  /**
   * Maximum size of a page. A page of traced runs ends early and has a cursor. The agent server refuses a larger page
   * unless it consists of a single row.
   */
  maxPageBytes: 64 * 1024 ** 2,
  /** Maximum time until a request has been received completely. */
  requestTimeoutMs: 60_000,
  /** Timeout of each query of a read request. */
  queryTimeoutMs: 30_000,
  /**
   * Maximum time for accepted work to finish at shutdown. It is the time that Kubernetes waits before it kills a pod.
   */
  drainTimeoutMs: 30_000,

  // Bulk export

  /** Delay before an export run is retried. */
  exportRetryDelayMs: 30_000,
  /**
   * Delay between the end of an interval and the scheduled bulk export of this interval, so that late events are
   * included.
   */
  exportScheduleDelayMs: 600_000,
  /** Interval at which bulk exports are checked for schedules that are due, timeouts and missing jobs. */
  exportSweepMs: 5_000,
  /** Time without heartbeats after which a worker loses its export run. */
  exportLeaseMs: 15_000,
  /** Number of runs after which a bulk export starts another file. */
  exportSliceRows: 240_000,

  // Agent server

  /**
   * Timeout for deriving the schemas of one graph from its TypeScript types in the background. 0 disables the
   * derivation.
   */
  agentsTypesSeconds: 120,
  /** Time after which an unresponsive process that runs graph code is replaced. */
  agentsHeartbeatTimeoutMs: 10_000,
  /**
   * Time without heartbeats after which another process takes over a graph run. Three heartbeats are sent in this time.
   */
  agentsLeaseMs: 15_000,
  /**
   * Time without output after which a stream sends a keep-alive comment. Proxies close idle connections after 30 to 60
   * s.
   */
  agentsHeartbeatMs: 5_000,
  /** Timeout for the app of `http.app` to start a response, and for each further chunk of the response. */
  agentsAppTimeoutMs: 300_000,
  /** Maximum number of child runs (nodes, model calls, tools) in the trace of one graph run. */
  agentsTraceChildRuns: 10_000,

  // Deployments

  /** Time without heartbeats after which another host takes over a revision or a replica. */
  deploymentsLeaseMs: 15_000,
  /** Interval at which a host looks for work without being notified, and checks its replicas. */
  deploymentsTickMs: 1_000,
  /** Maximum time for the replicas of a revision to answer. */
  deploymentsStartTimeoutMs: 300_000,
  /** Delay before a replica that ended is started again. It doubles with each failed start. */
  deploymentsRestartDelayMs: 1_000,
  /**
   * Time without requests after which a deployment of another type than prod is stopped until the next request, if it
   * has no crons and no unfinished runs.
   */
  deploymentsSleepMinutes: 24 * 60,
  /** Time for which a replaced replica still accepts requests, because proxies cache addresses for a shorter time. */
  deploymentsSwitchMs: 3_000,

  // Tool server

  /** Timeout of one call of a tool, including its wait for other calls of the same key. */
  toolsCallTimeoutMs: 60_000,
  /** Maximum size of the result of a tool; language models read far less. */
  toolsMaxAnswerBytes: 4 * 1024 ** 2,
  /** Size of the responses of the main API from which on a call of a tool reads no further pages. */
  toolsMaxReadBytes: 32 * 1024 ** 2,
  /** Maximum number of concurrent calls of one key. */
  toolsCallsPerKey: 8,
  /** Maximum number of calls of one key that wait for others of it. */
  toolsWaitingPerKey: 64,
  /** How long a connection may be silent before a keep-alive is sent. */
  toolsHeartbeatMs: 15_000,

  // Maximum number of organisations, and of resources per organisation: far above normal use, to contain a runaway
  // tenant.

  maxOrganizations: 1_000,
  maxWorkspaces: 10_000,
  maxMembers: 100_000,
  /** Maximum number of keys that are neither revoked nor expired. `runlake keys create` ignores this limit. */
  maxApiKeys: 10_000,
  /** Maximum number of tracing projects, including projects that are created by traces. */
  maxProjects: 100_000,
  /** Maximum number of deployments of a workspace. */
  maxDeployments: 1_000,
  exportMaxDestinations: 1_000,
  /** Maximum number of scheduled bulk exports that are not cancelled. */
  exportMaxSchedules: 1_000,
  /**
   * Maximum number of waiting and running bulk exports. Exports that are created by a schedule do not count and are
   * never refused.
   */
  exportMaxUnfinished: 10_000,
  maxOAuthProviders: 1_000,
  maxOAuthTokens: 100_000,
  /** Maximum number of authentications that wait for a user; each waits for at most ten minutes. */
  maxOAuthAuthentications: 10_000,
} as const satisfies Record<string, number>;

/** Shares of RUNLAKE_MEMORY_BYTES. The first three are for buffers of one process. */
export const memoryShares = {
  /**
   * Share for request bodies that are being received or processed, and for large responses. If it is exceeded,
   * requests of organisations above their fair share get 503.
   */
  maxCollectingBytes: 1 / 2,
  /** Share for accepted events that wait for the event log. If it is exceeded, requests get 503. */
  maxPendingBytes: 1 / 4,
  /**
   * Share for events that have been fetched from Kafka but not stored yet. If it is exceeded, fetching pauses. The
   * process needs about three times as much memory for these events: for the containers of inserts, for records as
   * objects, and for memory that the allocator retains.
   */
  maxFetchedBytes: 1 / 16,
  /** Share for the buffers of one encoder process of bulk exports. The process needs about 200 MB in addition. */
  exportEncoderBytes: 1 / 4,
  /**
   * Share for events that are buffered by one process that runs graph code. If it is exceeded, the run with the most
   * buffered events fails.
   */
  agentsWorkerBufferBytes: 1 / 4,
} as const;

/** The value of each constant by its key in `Config`, and the bytes of each share of the memory. */
export type InternalConfig = Readonly<Record<keyof typeof internals | keyof typeof memoryShares, number>>;
