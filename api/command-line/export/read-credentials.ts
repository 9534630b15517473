import { text as readAll } from 'node:stream/consumers';
import { fault } from '../../../infra/errors/runlake-error.ts';

/**
 * What `--credentials-stdin` reads, not checked yet. A person at a terminal is told what to type; what is typed there is seen.
 *
 * @throws BAD_REQUEST that repeats nothing of it.
 */
export async function readCredentials(
  input: NodeJS.ReadableStream & { readonly isTTY?: boolean },
  say: (line: string) => void,
): Promise<{ access_key_id: string; secret_access_key: string }> {
  if (input.isTTY === true) {
    say(
      'Type {"access_key_id": "...", "secret_access_key": "..."}, then Enter and Ctrl-D; or give a file by `< keys.json`.',
    );
  }
  try {
    return JSON.parse(await readAll(input));
  } catch {
    throw fault('BAD_REQUEST', { reason: 'Standard input holds no JSON with access_key_id and secret_access_key.' });
  }
}
