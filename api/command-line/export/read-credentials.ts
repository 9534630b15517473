import { text as readAll } from 'node:stream/consumers';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/**
 * Reads the unvalidated JSON for `--credentials-stdin`. On a terminal it prints a prompt; typed text is visible.
 *
 * @throws BAD_REQUEST if the input is not JSON; the message does not repeat the input.
 */
export async function readCredentials(
  input: NodeJS.ReadableStream & { readonly isTTY?: boolean },
  say: (line: string) => void,
): Promise<{ access_key_id: string; secret_access_key: string }> {
  if (input.isTTY === true) {
    say(
      'Type {"access_key_id": "...", "secret_access_key": "..."}, then Enter and Ctrl-D. Or pass a file with `< keys.json`.',
    );
  }
  try {
    return JSON.parse(await readAll(input));
  } catch {
    throw runlakeError('BAD_REQUEST', {
      reason: 'Standard input is not JSON with access_key_id and secret_access_key.',
    });
  }
}
