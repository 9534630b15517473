import type { PutObjectCommand, UploadPartCommand } from '@aws-sdk/client-s3';

/**
 * Sets the signed SHA-256 of the body of a command, which stores compare with the received data. The client would
 * compute it in one step and block the event loop.
 */
export function signedAs(command: PutObjectCommand | UploadPartCommand, sha256: string): void {
  // The two stacks differ only in type parameters that are not used here.
  const stack = command.middlewareStack as PutObjectCommand['middlewareStack'];
  stack.add(
    (next) => (args) => {
      (args.request as { headers: Record<string, string> }).headers['x-amz-content-sha256'] = sha256;
      return next(args);
    },
    { step: 'build', name: 'signedAs' },
  );
}
