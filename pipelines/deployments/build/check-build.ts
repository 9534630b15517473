import { realpath } from 'node:fs/promises';
import { dirname, extname, resolve } from 'node:path';
import { isSystemError } from '../../../infra/embedded/private-file.ts';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { readGraphsFile } from '../../agents/graphs/graphs-file.ts';
import { createBuildError, readInside, requireMissingInside, resolveInside } from './build-folder.ts';

/**
 * Maximum size of the langgraph.json and of its environment file. Runlake parses both at each start of a replica, and one
 * with a million entries takes ten seconds.
 */
const maxConfigBytes = 256 * 1024;

/**
 * Checks the langgraph.json of a build, and the files that Runlake itself reads because of it: they must be in the
 * folder of the build, also through links, because Runlake may read files that graph code must not.
 *
 * @returns the real path of the langgraph.json. @throws BUILD_FAILED
 */
export async function checkBuild(folder: string, configPath: string): Promise<string> {
  const root = await realpath(folder);
  const path = await resolveInside(root, resolve(root, configPath), configPath);
  const { env } = parseObject(await readInside(root, path, configPath, maxConfigBytes));
  if (typeof env === 'string') {
    const envPath = resolve(dirname(path), env);
    await readInside(root, envPath, env, maxConfigBytes).catch((error: unknown) => {
      // The environment file is usually not part of the source: its values are the secrets of the deployment.
      if (!isRunlakeError(error) || !isSystemError(error.cause, 'ENOENT')) throw error;
      return requireMissingInside(root, envPath, env);
    });
  }
  const { graphs } = await readGraphsFile(path, {}).catch((cause: unknown) => {
    throw isRunlakeError(cause) ? createBuildError(cause.message.replace(/\.$/, '')) : cause;
  });
  const python = graphs.find((graph) => extname(graph.path) === '.py');
  if (python !== undefined) {
    throw createBuildError(
      `The graph '${python.graphId}' is written in Python; Runlake runs graphs in JavaScript and TypeScript`,
    );
  }
  return path;
}

/** Returns an empty object for text that is not a JSON object; `readGraphsFile` reports it. */
function parseObject(text: string): { readonly env?: unknown } {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
