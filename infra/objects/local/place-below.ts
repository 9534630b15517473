import { mkdir, realpath } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { isSystemError } from '../../embedded/private-file.ts';
import { destinationFault, type ObjectCall } from '../destination-fault.ts';

/** Keys have no other parts; a part that is none of a path is refused. */
const notAPart = /^(?:\.{1,2})?$|\0/;

/**
 * The absolute path of `name` below `root`, whose folder is made where `make` says so. No part of it leads out of the root,
 * neither by its name nor by a link.
 *
 * @throws DESTINATION_BUCKET_NOT_VALID, and what the file system says.
 */
export async function placeBelow(
  root: string,
  name: string,
  call: ObjectCall,
  { make }: { readonly make: boolean },
): Promise<string> {
  if (name.split('/').some((part) => notAPart.test(part))) throw outside(call);
  const top = await realpath(root);
  const path = join(top, name);
  const folder = dirname(path);
  // Before anything is made: the part of the way that is there already decides where the rest would be.
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
  const beginning = top.endsWith(sep) ? top : top + sep;
  if (real !== top && !real.startsWith(beginning)) throw outside(call);
}

const outside = (call: ObjectCall) =>
  destinationFault('DESTINATION_BUCKET_NOT_VALID', call, 'its prefix leads out of the folder for local exports');
