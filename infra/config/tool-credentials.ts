import { runlakeError } from '../errors/runlake-error.ts';

/** Credentials that a client passes to `runlake tools --stdio` in its environment. */
export interface ToolEnvironment {
  readonly key: string;
  readonly workspace: string | undefined;
  /** Address of the main API. */
  readonly endpoint: string | undefined;
}

/** The product prefix of the original, which clients know, and that of Runlake. */
const prefixes = ['LANGSMITH', 'RUNLAKE'];

/** Reads `LANGSMITH_API_KEY`, `LANGSMITH_WORKSPACE_ID` and `LANGSMITH_ENDPOINT`. @throws INVALID_CONFIG without a key. */
export function readToolEnvironment(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): ToolEnvironment {
  const read = (name: string) =>
    prefixes.map((prefix) => environment[`${prefix}_${name}`]?.trim()).find((value) => value) || undefined;
  const key = read('API_KEY');
  if (key === undefined) {
    const errors = '  - LANGSMITH_API_KEY is required: an API key of the installation that the tools read.';
    throw runlakeError('INVALID_CONFIG', { count: 1, errors });
  }
  return { key, workspace: read('WORKSPACE_ID'), endpoint: read('ENDPOINT') };
}
