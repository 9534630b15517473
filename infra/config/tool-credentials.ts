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

/** Reads `LANGSMITH_API_KEY`, `LANGSMITH_WORKSPACE_ID` and `LANGSMITH_ENDPOINT`. */
export function readClientEnvironment(): ClientEnvironment {
  const read = (name: string) =>
    prefixes.map((prefix) => process.env[`${prefix}_${name}`]?.trim()).find((value) => value) || undefined;
  return { key: read('API_KEY'), workspace: read('WORKSPACE_ID'), endpoint: read('ENDPOINT') };
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
