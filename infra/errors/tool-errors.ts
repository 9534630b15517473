import { caller, type ErrorEntry, terminal, transient } from './entry.ts';

/** Errors of the tool server: of its requests, and of calls of its tools, whose results contain message and remedy. */
export const toolErrors = {
  TOOLS_KEY_MISSING: caller(
    401,
    'Missing LANGSMITH-API-KEY header',
    'Send an API key in the header LANGSMITH-API-KEY, RUNLAKE-API-KEY or x-api-key, or as Authorization: Bearer.',
  ),
  TOOLS_ENDPOINT_FORBIDDEN: caller(
    403,
    'The endpoint {endpoint} is not one that this tool server may call.',
    'Leave out the header LANGSMITH-ENDPOINT; the operator can allow other endpoints with RUNLAKE_TOOLS_ENDPOINTS.',
  ),
  TOOLS_ENDPOINT_UNAVAILABLE: transient(
    503,
    'The endpoint {endpoint} cannot be reached: {reason}.',
    'Check LANGSMITH_ENDPOINT, and that the installation runs.',
  ),
  TOOLS_STDIO_KEY_INVALID: terminal(
    500,
    '{reason}',
    'Set LANGSMITH_API_KEY to an API key of the installation, and LANGSMITH_ENDPOINT to its address.',
  ),
  TOOL_REQUEST_FAILED: caller(400, '{reason}', 'Correct the arguments and call the tool again.'),
  TOOL_FAILED: terminal(
    500,
    'The tool {tool} failed with an internal error.',
    'The log of the server has the reason, in the line "tool failed".',
  ),
  TOOL_FOUND_NOTHING: caller(404, '{reason}', 'Check the names and ids in the arguments.'),
  TOOL_CALLS_LIMITED: caller(
    429,
    'Too many calls at once: this API key has {limit} running calls, and too many waiting ones.',
    'Wait for the results of earlier calls.',
  ),
  TOOL_TIMEOUT: caller(
    422,
    'The call did not finish within {limitMs} ms.',
    'Ask for less: a smaller limit, a shorter range, or more conditions.',
  ),
  TOOL_ANSWER_TOO_LARGE: caller(
    413,
    'The result is larger than {limitBytes} bytes.',
    'Ask for less: a smaller limit, or fewer fields.',
  ),
} as const satisfies Record<string, ErrorEntry>;
