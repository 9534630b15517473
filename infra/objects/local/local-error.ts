import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { destinationError, type ObjectCall } from '../destination-error.ts';

type Known = readonly [code: Parameters<typeof destinationError>[0], reason: string];

const denied: Known = ['DESTINATION_ACCESS_DENIED', 'the user that runs Runlake has no permission'];
const full: Known = ['DESTINATION_UNAVAILABLE', 'the disk is full'];

const byCode: Readonly<Record<string, Known>> = {
  EACCES: denied,
  EPERM: denied,
  EROFS: ['DESTINATION_ACCESS_DENIED', 'the file system is read-only'],
  ENOENT: ['DESTINATION_BUCKET_NOT_VALID', 'the folder for local exports does not exist'],
  ENOTDIR: ['DESTINATION_BUCKET_NOT_VALID', 'a part of its path is a file'],
  EISDIR: ['DESTINATION_BUCKET_NOT_VALID', 'a folder has the name of the object'],
  EEXIST: ['DESTINATION_BUCKET_NOT_VALID', 'a part of its path is a file'],
  ENAMETOOLONG: ['DESTINATION_BUCKET_NOT_VALID', 'its name is too long'],
  ELOOP: ['DESTINATION_BUCKET_NOT_VALID', 'its path contains a loop of symbolic links'],
  ENOSPC: full,
  EDQUOT: full,
};

/** Converts a file system error to an error of the catalogue. */
export function localError(raw: unknown, call: ObjectCall): RunlakeError {
  if (isRunlakeError(raw)) return raw;
  const code = String((raw as NodeJS.ErrnoException | undefined)?.code);
  if (code === 'ENOENT' && call.step === 'read')
    return runlakeError('DESTINATION_OBJECT_MISSING', { where: call.where });
  const [name, reason] = byCode[code] ?? ['DESTINATION_UNAVAILABLE', `the file system returned ${code}`];
  return destinationError(name, call, reason, raw);
}
