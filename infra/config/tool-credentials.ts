import { runlakeError } from '../errors/runlake-error.ts';

/** Variables with which users configure clients of the main API, and which commands read, too. */
export interface ClientEnvironment {
  readonly key: string | undefined;
  readonly workspace: string | undefined;
  /** Address of the main API. */
  readonly endpoint: string | undefined;
}

/** The product prefix of the original, which clients know, and that of Runlake. */
const prefixes = ['LANGSMITH', 'RUNLAKE'];

/** Credentials that a client passes to `runlake tools --stdio` in its environment. */
export interface ToolEnvironment extends ClientEnvironment {
  readonly key: string;
}

/**
 * Reads `LANGSMITH_API_KEY`, `LANGSMITH_WORKSPACE_ID` and `LANGSMITH_ENDPOINT`.
 *
 * @throws INVALID_CONFIG if the key or the workspace has characters that the header of a request cannot have.
 */
export function readClientEnvironment(): ClientEnvironment {
  return { key: readForHeader('API_KEY'), workspace: readForHeader('WORKSPACE_ID'), endpoint: read('ENDPOINT')?.value };
}

function read(name: string): { readonly variable: string; readonly value: string } | undefined {
  const variables = prefixes.map((prefix) => `${prefix}_${name}`);
  return variables
    .map((variable) => ({ variable, value: process.env[variable]?.trim() ?? '' }))
    .find(({ value }) => value !== '');
}

/** Without this check, the request would fail like one to a server that does not respond. */
function readForHeader(name: string): string | undefined {
  const { variable, value } = read(name) ?? {};
  if (value === undefined || /^[\t\x20-\x7e\x80-\xff]*$/.test(value)) return value;
  const errors = `  - ${variable} contains a line break or another character that it cannot have. Copy it again.`;
  throw runlakeError('INVALID_CONFIG', { count: 1, errors });
}

/** Like {@link readClientEnvironment}. @throws INVALID_CONFIG without a key. */
export function readToolEnvironment(): ToolEnvironment {
  const { key, ...others } = readClientEnvironment();
  if (key === undefined) {
    const errors = '  - LANGSMITH_API_KEY is required: an API key of the installation that the tools read.';
    throw runlakeError('INVALID_CONFIG', { count: 1, errors });
  }
  return { key, ...others };
}
