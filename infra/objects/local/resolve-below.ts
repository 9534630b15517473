import { mkdir, realpath } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { isSystemError } from '../../embedded/private-file.ts';
import { destinationError, type ObjectCall } from '../destination-error.ts';

/** Parts that are not allowed in a path: empty, `.`, `..`, or with a NUL character. */
const notAPart = /^(?:\.{1,2})?$|\0/;

/**
 * Returns the absolute path of `name` below `root`, and creates its folder if `make` is set. The path cannot leave the
 * root, neither by its name nor by a symbolic link.
 *
 * @throws DESTINATION_BUCKET_NOT_VALID, and errors of the file system.
 */
export async function resolveBelow(
  root: string,
  name: string,
  call: ObjectCall,
  { make }: { readonly make: boolean },
): Promise<string> {
  if (name.split('/').some((part) => notAPart.test(part))) throw outside(call);
  const top = await realpath(root);
  const path = join(top, name);
  const folder = dirname(path);
  // Checked before folders are created, because a link in the existing part of the path decides where they would be.
  await requireBelow(top, await realpathOfWhatIsThere(folder), call);
  if (make) {
    await mkdir(folder, { recursive: true });
    await requireBelow(top, await realpath(folder), call);
  }
  return path;
}

async function realpathOfWhatIsThere(folder: string): Promise<string> {
  for (let path = folder; ; path = dirname(path)) {
    try {
      return await realpath(path);
    } catch (error) {
      if (!isSystemError(error, 'ENOENT') || dirname(path) === path) throw error;
    }
  }
}

async function requireBelow(top: string, real: string, call: ObjectCall): Promise<void> {
  const start = top.endsWith(sep) ? top : top + sep;
  if (real !== top && !real.startsWith(start)) throw outside(call);
}

const outside = (call: ObjectCall) =>
  destinationError('DESTINATION_BUCKET_NOT_VALID', call, 'its prefix leads out of the folder for local exports');
