import { spawnSync } from 'node:child_process';
import zlib from 'node:zlib';
import { pythonEnvironment } from '../../test/e2e/python/environment.ts';

const script = `
import sys, struct, zstandard
data = sys.stdin.buffer.read()
at = 0
while at < len(data):
    (size,) = struct.unpack_from('<I', data, at)
    packed = zstandard.ZstdCompressor().compress(data[at + 4 : at + 4 + size])
    sys.stdout.buffer.write(struct.pack('<I', len(packed)) + packed)
    at += 4 + size
`;

/** Compresses bodies with zstd: with Node if supported, else with the tests' Python; undefined if neither can. */
export function zstdBodies(bodies: readonly Buffer[]): Buffer[] | undefined {
  const compress = (zlib as { zstdCompressSync?: (body: Buffer) => Buffer }).zstdCompressSync;
  if (compress !== undefined) return bodies.map((body) => compress(body));
  const environment = pythonEnvironment();
  if ('missing' in environment) return undefined;
  const { stdout } = spawnSync(environment.python, ['-c', script], { input: framed(bodies), maxBuffer: 2 ** 30 });
  const packed: Buffer[] = [];
  for (let at = 0; at < stdout.length; ) {
    const size = stdout.readUInt32LE(at);
    packed.push(stdout.subarray(at + 4, at + 4 + size));
    at += 4 + size;
  }
  return packed;
}

function framed(bodies: readonly Buffer[]): Buffer {
  return Buffer.concat(
    bodies.flatMap((body) => {
      const size = Buffer.alloc(4);
      size.writeUInt32LE(body.length);
      return [size, body];
    }),
  );
}
