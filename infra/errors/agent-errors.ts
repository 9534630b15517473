import { caller, type ErrorEntry, terminal, transient } from './entry.ts';

/** Errors of the agent server: what its routes answer, what its streams tell, and what keeps it from starting. */
export const agentErrors = {
  DEPLOYMENT_FORBIDDEN: caller(
    403,
    'This agent server belongs to a workspace that the API key does not reach, or that X-Tenant-Id does not name.',
    'Send a key of the workspace that owns it, without X-Tenant-Id; or ask the address of your own agent server.',
  ),
  DEPLOYMENT_DELETED: caller(
    403,
    'The workspace of this agent server was deleted.',
    'Ask the address of another agent server; the operator can stop this one.',
  ),
  DEPLOYMENT_WITHOUT_WORKSPACE: terminal(
    500,
    'The workspace {workspace} of deployment {deployment} was deleted.',
    'Set RUNLAKE_AGENTS_DEPLOYMENT to a deployment of another workspace, or start without RUNLAKE_AGENTS_FILE.',
  ),
  AUTH_REJECTED: caller(
    401,
    '{reason}',
    'Send what the custom authentication of this deployment asks for: the `auth` of its langgraph.json.',
  ),
  AUTH_FORBIDDEN: caller(
    403,
    '{reason}',
    'The custom authentication of this deployment does not allow it: ask who runs it.',
  ),
  AUTH_UNAVAILABLE: transient(
    503,
    'The custom authentication of this deployment gave no answer: {reason}.',
    'Try again in a moment; who runs it finds more in the log.',
  ),
  AUTH_UNUSABLE: terminal(500, '{reason}', 'Correct the module that auth.path of the langgraph.json names.'),
  APP_UNUSABLE: terminal(500, '{reason}', 'Correct the module that http.app of the langgraph.json names.'),
  APP_UNAVAILABLE: transient(
    503,
    'The custom app of this deployment takes no request now: {reason}.',
    'Try again in a moment; who runs it finds more in the log.',
  ),
  APP_FAILED: transient(
    502,
    'The process of the custom app ended, or closed the connection, before it answered.',
    'Try again, if doing it twice is harmless; who runs it finds more in the log.',
  ),
  APP_TIMEOUT: transient(
    504,
    'The custom app did not answer within {seconds} s.',
    'Try again, or let it answer sooner: RUNLAKE_AGENTS_APP_TIMEOUT_MS says how long it has.',
  ),
  AUTH_HANDLER_INVALID: terminal(
    500,
    "The handler of '{event}' answered what cannot be followed: {reason}.",
    'Let the handler answer true, false, or a filter of values, $eq and $contains.',
  ),
  WEBSOCKET_NOT_TAKEN: terminal(
    501,
    'WebSockets do not reach the custom app of this deployment.',
    'Let the app stream its answer instead, such as by server-sent events.',
  ),
  WEBSOCKET_EXPECTED: caller(
    426,
    'This path serves WebSockets alone.',
    'Ask for an upgrade to a WebSocket, or POST to the same path for server-sent events.',
  ),
  EVENT_STREAM_NOT_ACCEPTED: caller(
    406,
    "This path answers with text/event-stream, which the header Accept '{accept}' leaves out.",
    'Leave the header out or add text/event-stream; for one answer in JSON ask the paths that end in /wait or /join.',
  ),
  GRAPH_TYPES_UNREADABLE: terminal(
    500,
    '{reason}',
    'Install typescript and the types of @langchain/langgraph in the project of the graph, or describe its state with zod.',
  ),
  ASSISTANT_NOT_FOUND: caller(
    404,
    "There is no assistant or graph '{assistant}'.",
    'List them with POST /assistants/search; graphs are those that the langgraph.json names.',
  ),
  ASSISTANT_EXISTS: caller(
    409,
    "There is an assistant '{assistant}' already.",
    'Choose another assistant_id, or send if_exists "do_nothing".',
  ),
  GRAPH_NOT_FOUND: caller(404, "There is no graph '{graph}'.", 'Name one of the langgraph.json: {graphs}.'),
  THREAD_NOT_FOUND: caller(
    404,
    "There is no thread '{thread}'.",
    'Make it with POST /threads, or send if_not_exists "create" with the run.',
  ),
  // 409 and not 404: that is what clients of the original server know.
  THREAD_TO_COPY_NOT_FOUND: caller(
    409,
    "There is no thread '{thread}' that could be copied.",
    'List threads with POST /threads/search.',
  ),
  THREAD_EXISTS: caller(
    409,
    "There is a thread '{thread}' already.",
    'Choose another thread_id, or send if_exists "do_nothing".',
  ),
  RUN_ENDED: caller(
    409,
    "Run '{run}' has ended as {status}: it cannot be rolled back.",
    'Go back with a fork: update the state of the thread at an earlier checkpoint.',
  ),
  THREAD_BUSY: caller(
    409,
    "Thread '{thread}' is busy with a run.",
    'Wait for the run, cancel it, or send multitask_strategy "enqueue", "interrupt" or "rollback".',
  ),
  THREAD_WITHOUT_GRAPH: caller(
    400,
    "Thread '{thread}' has no graph yet.",
    'Start a run on it first, or make it with metadata.graph_id.',
  ),
  RUN_NOT_FOUND: caller(
    404,
    "There is no run '{run}'.",
    'List the runs of a thread with GET /threads/{thread_id}/runs.',
  ),
  CHECKPOINT_NOT_FOUND: caller(
    404,
    "Thread '{thread}' has no checkpoint '{checkpoint}'.",
    'List them with POST /threads/{thread_id}/history.',
  ),
  ANSWER_TOO_LARGE: caller(
    422,
    'The answer would have more than {limitBytes} bytes ({limit}).',
    'Ask for fewer at once, with `limit`, or for fewer fields of each, with `select` where there is one. One alone is always answered.',
  ),
  FIELD_NOT_BUILT: caller(
    422,
    "'{field}' is not supported yet.",
    'Leave it out: a field without effect is refused, never ignored.',
  ),
  GRAPHS_FILE_INVALID: terminal(
    500,
    '{file} cannot be used: {place}: {reason}.',
    'Correct the langgraph.json, or name another with RUNLAKE_AGENTS_FILE.',
  ),
  FEEDBACK_ADDRESS_UNSET: caller(
    422,
    "'feedback_keys' needs an address under which feedback can be left, and RUNLAKE_PUBLIC_URL is not set.",
    'Set RUNLAKE_PUBLIC_URL of the agent server to the address of the main API, or leave the field out.',
  ),
  GRAPH_UNUSABLE: caller(
    422,
    "Graph '{graph}' cannot be used: {reason}.",
    'Correct its module and start the agent server again; the other graphs serve meanwhile.',
  ),
  GRAPH_FAILED: caller(
    422,
    "Graph '{graph}' failed to answer: {reason}.",
    'Look at the code of the graph, and at the config of its assistant.',
  ),
  GRAPH_NODE_UNKNOWN: caller(
    422,
    "Graph '{graph}' has no node '{node}', as {field} names it. There are: {known}.",
    'Name one of them; nodes of graphs within it have no effect there. `*` stops at all; `__end__`, alone and without `resume`, ends what waits.',
  ),
  STATE_UPDATE_INVALID: caller(
    422,
    'The state cannot be updated so: {reason}.',
    'Name with as_node a node of the graph; give values that its state takes.',
  ),
  GRAPH_WORKER_START_FAILED: terminal(
    500,
    'The processes that run graph code do not start: {reason}.',
    'Look at the log above, and at memory and processes of the machine.',
  ),
  GRAPH_CODE_NOT_ISOLATED: terminal(
    500,
    'RUNLAKE_AGENTS_ISOLATION requires what cannot be had here: {reason}.',
    'Start Runlake on Linux as root, with a project and packages that other users can read; or set RUNLAKE_AGENTS_ISOLATION to auto, and graph code is as trusted as the operator.',
  ),
  GRAPH_WORKER_BUSY: transient(
    503,
    'No process that runs graph code was free in time.',
    'Try again in a moment; with many questions at once, raise RUNLAKE_AGENTS_WORKERS.',
  ),
  WORKER_PROTOCOL_VIOLATED: terminal(
    500,
    'A process that runs graph code sent what no such process sends: {reason}.',
    'Let graph code leave the file descriptors alone that it has not opened.',
  ),
  STREAM_BUFFER_FULL: terminal(
    500,
    'The graph streams faster than its events are stored: {bytes} bytes wait, and the process may hold {limit}.',
    'Let the graph stream fewer or smaller events, or raise RUNLAKE_AGENTS_WORKER_BUFFER_BYTES.',
  ),
  WORKER_MESSAGE_TOO_LARGE: terminal(
    500,
    'The graph has a state or an answer of {bytes} bytes; at most {limit} can be taken from its process.',
    'Keep large values elsewhere and their address in the state.',
  ),
  LEASE_LOST: transient(
    503,
    'Another process has taken over what is written to the thread {thread}.',
    'Nothing needs to be done: that process goes on.',
  ),
  STATE_NOT_OWN: terminal(
    500,
    "State of the thread '{thread}' cannot be kept: it is not the run's own.",
    'Let the graph write to the thread of its run only.',
  ),
  RUN_LOST: terminal(
    500,
    'The run was lost {losses} times with the process that executed it.',
    'Look at the log of the agent role for what ended it; start the run again.',
  ),
  STREAM_READER_TOO_SLOW: transient(
    503,
    'The reader took too little for too long, so it was cut off. The run goes on.',
    'Read faster, or come back with Last-Event-ID where the run is resumable.',
  ),
  STREAM_INCOMPLETE: transient(
    503,
    'Some events of the stream are not to be had.',
    'Read the state of the thread; start the stream again from the beginning.',
  ),
  CRON_NOT_FOUND: caller(404, "There is no cron '{cron}'.", 'List them with POST /runs/crons/search.'),
  CRON_SCHEDULE_INVALID: caller(
    422,
    "'{schedule}' is not a schedule: {reason}.",
    'Send minute, hour, day of the month, month and day of the week, such as "0 9 * * 1-5", that come some day.',
  ),
  CRON_TIMEZONE_UNKNOWN: caller(
    422,
    "There is no time zone '{timezone}'.",
    'Send a name of the IANA database, such as "Europe/Berlin"; without one the schedule is read in UTC.',
  ),
  CRON_LIMIT_REACHED: caller(
    422,
    'There are {limit} crons already, as many as may be.',
    'Delete crons that are not needed, or raise RUNLAKE_AGENTS_MAX_CRONS.',
  ),
  WEBHOOK_INVALID: caller(
    422,
    "'{url}' cannot be a webhook: {reason}.",
    'Send a public http or https address, or a path of this server that begins with /. The operator can allow loopback and private ones with RUNLAKE_ALLOW_PRIVATE_ENDPOINTS.',
  ),
  STORE_NAMESPACE_INVALID: caller(
    422,
    "'{namespace}' cannot be a namespace: {reason}.",
    'Send a list of labels: text that is not empty and has no dot.',
  ),
  STORE_ITEM_NOT_FOUND: caller(404, "There is no item '{key}'.", 'Check namespace and key.'),
  STORE_KEY_INVALID: caller(422, "'{key}' cannot be a key.", 'Send text without NUL characters and lone surrogates.'),
  STORE_FILTER_INVALID: caller(
    422,
    "The filter of '{field}' has no meaning: '{operator}' is no operator.",
    'Use $eq, $ne, $gt, $gte, $lt and $lte, or the value itself.',
  ),
  STORE_TOO_MANY_VECTORS: caller(
    422,
    'More than {limit} texts are in question, too many to compare each.',
    'Search in a longer prefix or with a filter.',
  ),
  STORE_WITHOUT_INDEX: caller(
    422,
    'The store of this deployment has no index, so that nothing can be found by meaning.',
    'Leave out `{field}`, or name an embedder in `store.index` of the langgraph.json.',
  ),
  STORE_EMBEDDER_UNUSABLE: terminal(
    500,
    'The embedder of the store cannot be used: {reason}.',
    'Correct `store.index` of the langgraph.json, or what it names.',
  ),
} as const satisfies Record<string, ErrorEntry>;
