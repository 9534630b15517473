import { fault, isRunlakeError, type RunlakeError } from '../../errors/runlake-error.ts';
import { destinationFault, type ObjectCall } from '../destination-fault.ts';

type Known = readonly [code: Parameters<typeof destinationFault>[0], reason: string];

const denied: Known = ['DESTINATION_ACCESS_DENIED', 'the user that runs Runlake may not do this'];
const full: Known = ['DESTINATION_UNAVAILABLE', 'there is no room left on its disk'];

const byCode: Readonly<Record<string, Known>> = {
  EACCES: denied,
  EPERM: denied,
  EROFS: ['DESTINATION_ACCESS_DENIED', 'it can only be read'],
  ENOENT: ['DESTINATION_BUCKET_NOT_VALID', 'the folder for local exports is not there'],
  ENOTDIR: ['DESTINATION_BUCKET_NOT_VALID', 'a part of its path is a file'],
  EISDIR: ['DESTINATION_BUCKET_NOT_VALID', 'a folder has the name of the object'],
  EEXIST: ['DESTINATION_BUCKET_NOT_VALID', 'a part of its path is a file'],
  ENAMETOOLONG: ['DESTINATION_BUCKET_NOT_VALID', 'its name is too long'],
  ELOOP: ['DESTINATION_BUCKET_NOT_VALID', 'its path goes round in links'],
  ENOSPC: full,
  EDQUOT: full,
};

/** The catalogue's error for whatever the file system said. */
export function localFault(raw: unknown, call: ObjectCall): RunlakeError {
  if (isRunlakeError(raw)) return raw;
  const code = String((raw as NodeJS.ErrnoException | undefined)?.code);
  if (code === 'ENOENT' && call.step === 'read') return fault('DESTINATION_OBJECT_MISSING', { where: call.where });
  const [name, reason] = byCode[code] ?? ['DESTINATION_UNAVAILABLE', `the file system says ${code}`];
  return destinationFault(name, call, reason, raw);
}
