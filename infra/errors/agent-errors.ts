import { caller, type ErrorEntry, terminal, transient } from './entry.ts';

/** Errors of the agent server: errors of its routes, of its streams, and at startup. */
export const agentErrors = {
  DEPLOYMENT_FORBIDDEN: caller(
    403,
    'The API key has no access to the workspace of this agent server, or X-Tenant-Id is a different workspace.',
    'Send a key of the workspace that owns this agent server, without X-Tenant-Id, or use the URL of your own agent server.',
  ),
  DEPLOYMENT_DELETED: caller(
    403,
    'The workspace of this agent server was deleted.',
    'Use another agent server; the operator can stop this one.',
  ),
  DEPLOYMENT_WITHOUT_WORKSPACE: terminal(
    500,
    'The workspace {workspace} of deployment {deployment} was deleted.',
    'Set RUNLAKE_AGENTS_DEPLOYMENT to a deployment of another workspace, or unset RUNLAKE_AGENTS_FILE.',
  ),
  AUTH_REJECTED: caller(
    401,
    '{reason}',
    'Send the credentials that the custom authentication of this deployment (`auth` of its langgraph.json) requires.',
  ),
  AUTH_FORBIDDEN: caller(
    403,
    '{reason}',
    'The custom authentication of this deployment denies the request; contact its operator.',
  ),
  AUTH_UNAVAILABLE: transient(
    503,
    'The custom authentication of this deployment is not available: {reason}.',
    'Retry after a moment; the server log has details for the operator.',
  ),
  AUTH_UNUSABLE: terminal(500, '{reason}', 'Correct the module in auth.path of the langgraph.json.'),
  APP_UNUSABLE: terminal(500, '{reason}', 'Correct the module in http.app of the langgraph.json.'),
  APP_UNAVAILABLE: transient(
    503,
    'The custom app of this deployment is not available: {reason}.',
    'Retry after a moment; the server log has details for the operator.',
  ),
  APP_FAILED: transient(
    502,
    'The process of the custom app exited, or closed the connection, before it responded.',
    'Retry if the request is idempotent; the server log has details for the operator.',
  ),
  APP_TIMEOUT: transient(
    504,
    'The custom app did not respond within {seconds} s.',
    'Retry, or make the app respond sooner.',
  ),
  AUTH_HANDLER_INVALID: terminal(
    500,
    "The auth handler of '{event}' returned an invalid value: {reason}.",
    'The handler must return true, false, or a filter with plain values, $eq and $contains.',
  ),
  WEBSOCKET_NOT_ACCEPTED: terminal(
    501,
    'The custom app of this deployment cannot serve WebSockets.',
    'Stream the response of the app instead, for example as server-sent events.',
  ),
  WEBSOCKET_EXPECTED: caller(
    426,
    'This path serves only WebSockets.',
    'Request a WebSocket upgrade, or POST to the same path for server-sent events.',
  ),
  EVENT_STREAM_NOT_ACCEPTED: caller(
    406,
    "This path responds with text/event-stream, which the header Accept '{accept}' does not include.",
    'Remove the header or add text/event-stream; for a single JSON response use the paths that end in /wait or /join.',
  ),
  GRAPH_TYPES_UNREADABLE: terminal(
    500,
    '{reason}',
    'Install typescript and the types of @langchain/langgraph in the project of the graph, or define its state with zod.',
  ),
  ASSISTANT_NOT_FOUND: caller(
    404,
    "There is no assistant or graph '{assistant}'.",
    'List assistants with POST /assistants/search; graphs are declared in the langgraph.json.',
  ),
  ASSISTANT_EXISTS: caller(
    409,
    "An assistant '{assistant}' already exists.",
    'Use another assistant_id, or send if_exists "do_nothing".',
  ),
  GRAPH_NOT_FOUND: caller(404, "There is no graph '{graph}'.", 'Use a graph of the langgraph.json: {graphs}.'),
  THREAD_NOT_FOUND: caller(
    404,
    "There is no thread '{thread}'.",
    'Create it with POST /threads, or send if_not_exists "create" with the run.',
  ),
  // The status is 409 and not 404, because existing clients expect 409.
  THREAD_TO_COPY_NOT_FOUND: caller(
    409,
    "There is no thread '{thread}' to copy.",
    'List threads with POST /threads/search.',
  ),
  THREAD_EXISTS: caller(
    409,
    "A thread '{thread}' already exists.",
    'Use another thread_id, or send if_exists "do_nothing".',
  ),
  RUN_ENDED: caller(
    409,
    "Run '{run}' has ended with status {status} and cannot be rolled back.",
    'Fork instead: update the state of the thread at an earlier checkpoint.',
  ),
  THREAD_BUSY: caller(
    409,
    "Thread '{thread}' is busy with a run or an update of its state.",
    'Wait for the run, cancel it, send multitask_strategy "enqueue", "interrupt" or "rollback", or send the request again.',
  ),
  THREAD_WITHOUT_GRAPH: caller(
    400,
    "Thread '{thread}' has no graph yet.",
    'Start a run on the thread first, or create the thread with metadata.graph_id.',
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
    'The response would be larger than {limitBytes} bytes, or have too many JSON values.',
    'Request fewer items with `limit`, or fewer fields with `select` if the route has it. A single item is always returned.',
  ),
  FIELD_NOT_BUILT: caller(
    422,
    "'{field}' is not supported yet.",
    'Leave the field out. Runlake rejects fields that it does not support instead of ignoring them.',
  ),
  GRAPHS_FILE_INVALID: terminal(
    500,
    '{file} cannot be used: {location}: {reason}.',
    'Correct the langgraph.json, or set RUNLAKE_AGENTS_FILE to another file.',
  ),
  FEEDBACK_ADDRESS_UNSET: caller(
    422,
    "'feedback_keys' requires RUNLAKE_PUBLIC_URL, which is not set: feedback links start with that URL.",
    'Set RUNLAKE_PUBLIC_URL of the agent server to the URL of the main API, or leave the field out.',
  ),
  GRAPH_UNUSABLE: caller(
    422,
    "Graph '{graph}' cannot be used: {reason}.",
    'Correct its module and restart the agent server. The other graphs stay available.',
  ),
  UI_NOT_FOUND: caller(404, "There is no UI '{ui}'.", 'Use a name in `ui` of the langgraph.json.'),
  UI_UNUSABLE: caller(
    422,
    "The UI '{ui}' cannot be built: {reason}.",
    'Correct its module and restart the agent server. The graphs stay available.',
  ),
  GRAPH_FAILED: caller(
    422,
    "Graph '{graph}' failed: {reason}.",
    'Check the code of the graph and the config of its assistant.',
  ),
  GRAPH_NODE_UNKNOWN: caller(
    422,
    "Graph '{graph}' has no node '{node}' ({field}). Its nodes are: {known}.",
    'Use one of its nodes; nodes of subgraphs have no effect there. `*` stops at all nodes; `__end__`, alone and without `resume`, ends waiting tasks.',
  ),
  STATE_UPDATE_INVALID: caller(
    422,
    'The state update is invalid: {reason}.',
    'Set as_node to a node of the graph, and send values that match its state schema.',
  ),
  GRAPH_WORKER_START_FAILED: terminal(
    500,
    'The processes that run graph code failed to start: {reason}.',
    'See earlier log messages, and check the memory and process limits of the machine.',
  ),
  GRAPH_CODE_NOT_ISOLATED: terminal(
    500,
    "RUNLAKE_AGENTS_ISOLATION is 'required', but graph code cannot be isolated here: {reason}.",
    'Start Runlake as root on Linux, with a project and packages that other users can read. Or set RUNLAKE_AGENTS_ISOLATION to auto: then graph code is as trusted as the operator.',
  ),
  GRAPH_WORKER_BUSY: transient(
    503,
    'The process that runs graph code for queries did not answer in time.',
    'Retry after a moment. If it happens again, check that the functions that make graphs, their checkpointers and the embedder of the store return in time.',
  ),
  WORKER_PROTOCOL_VIOLATED: terminal(
    500,
    'A process that runs graph code sent an invalid message: {reason}.',
    'Graph code must not use file descriptors that it did not open.',
  ),
  STREAM_BUFFER_FULL: terminal(
    500,
    'The graph streams events faster than they can be stored: its process buffers {bytes} bytes (limit: {limit}).',
    'Stream fewer or smaller events, or raise RUNLAKE_MEMORY_BYTES.',
  ),
  WORKER_MESSAGE_TOO_LARGE: terminal(
    500,
    'The graph returned a state, interrupts or a result that is too large: {reason}.',
    'Store large or deeply nested values elsewhere, and keep references to them in the state.',
  ),
  LEASE_LOST: transient(
    503,
    'Another process has taken over the run on thread {thread}.',
    'No action is needed: the other process continues the run.',
  ),
  CLOCK_BEHIND: transient(
    503,
    "The newest state of thread '{thread}' has a time {seconds} s ahead of the clock of this process.",
    'Synchronise the clocks of all hosts that run agent servers, and wait until the clock has passed that time.',
  ),
  STATE_NOT_OWN: terminal(
    500,
    "The run cannot write state of thread '{thread}': it may write only to its own thread.",
    'The graph must write only to the thread of its run.',
  ),
  STATE_NOT_SERIALIZABLE: terminal(
    500,
    "The value of '{channel}' cannot be stored: {reason}.",
    'Keep only values in the state that JSON can represent. Convert a BigInt to text.',
  ),
  RUN_LOST: terminal(
    500,
    'The process that executed the run died {losses} times.',
    'See the log of the agent role for the cause, then start the run again.',
  ),
  STREAM_READER_TOO_SLOW: transient(
    503,
    'The client read too slowly; the stream was closed. The run continues.',
    'Read faster, or reconnect with Last-Event-ID if the run is resumable.',
  ),
  STREAM_INCOMPLETE: transient(
    503,
    'Some events of the stream are lost.',
    'Read the state of the thread, or restart the stream from the beginning.',
  ),
  CRON_NOT_FOUND: caller(404, "There is no cron '{cron}'.", 'List them with POST /runs/crons/search.'),
  CRON_SCHEDULE_INVALID: caller(
    422,
    "'{schedule}' is not a valid schedule: {reason}.",
    'Send minute, hour, day of month, month and day of week, for example "0 9 * * 1-5". The schedule must have at least one future run.',
  ),
  CRON_TIMEZONE_UNKNOWN: caller(
    422,
    "Unknown time zone '{timezone}'.",
    'Send an IANA time zone name, for example "Europe/Berlin". The default is UTC.',
  ),
  CRON_LIMIT_REACHED: caller(422, 'Cron limit reached ({limit}).', 'Delete crons that are not needed.'),
  WEBHOOK_INVALID: caller(
    422,
    "'{url}' cannot be a webhook: {reason}.",
    'Send an http or https URL with a public address, or a path of this server that starts with /. The operator can allow loopback and private addresses with RUNLAKE_ALLOW_PRIVATE_ENDPOINTS.',
  ),
  STORE_NAMESPACE_INVALID: caller(
    422,
    "'{namespace}' cannot be a namespace: {reason}.",
    'Send a list of labels, each a non-empty string without dots.',
  ),
  STORE_ITEM_NOT_FOUND: caller(404, "There is no item '{key}'.", 'Check the namespace and the key.'),
  STORE_KEY_INVALID: caller(
    422,
    "'{key}' cannot be a key: {reason}.",
    'Send text without NUL characters and lone surrogates. If it is too long, send a shorter key, or fewer and shorter labels.',
  ),
  STORE_FILTER_INVALID: caller(
    422,
    "The filter of '{field}' is invalid: '{operator}' is not an operator.",
    'Use $eq, $ne, $gt, $gte, $lt, $lte, $in and $nin, or the value itself.',
  ),
  STORE_TOO_MANY_TEXTS: caller(
    422,
    "The index paths of the item '{key}' select more than {limit} {what}.",
    'Send `index` with paths that select fewer texts, or split the value over several items.',
  ),
  STORE_TOO_MANY_VECTORS: caller(
    422,
    'The vector search would have to compare more than {limit} texts.',
    'Narrow the search with a longer namespace prefix or a filter.',
  ),
  STORE_WITHOUT_INDEX: caller(
    422,
    'The store of this deployment has no vector index, so semantic search is not available.',
    'Leave out `{field}`, or configure an embedder in `store.index` of the langgraph.json.',
  ),
  STORE_EMBEDDER_UNUSABLE: terminal(
    500,
    'The embedder of the store cannot be used: {reason}.',
    'Correct `store.index` of the langgraph.json, or the embedder that it references.',
  ),
} as const satisfies Record<string, ErrorEntry>;
