import type { PutObjectCommand, UploadPartCommand } from '@aws-sdk/client-s3';

/**
 * Gives a command the SHA-256 of its body, which is signed and which stores compare with what arrives. The client would
 * compute it in one go, which holds the event loop up for as long.
 */
export function signedAs(command: PutObjectCommand | UploadPartCommand, sha256: string): void {
  // The stacks differ in the types of what they carry, which is not looked at.
  const stack = command.middlewareStack as PutObjectCommand['middlewareStack'];
  stack.add(
    (next) => (args) => {
      (args.request as { headers: Record<string, string> }).headers['x-amz-content-sha256'] = sha256;
      return next(args);
    },
    { step: 'build', name: 'signedAs' },
  );
}
