import { readFileSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';

/** Answers with who it runs as, and with the file that the path names or why it cannot be read. */
export const app = {
  async fetch(request) {
    const path = decodeURIComponent(new URL(request.url).pathname);
    let read;
    try {
      read = readFileSync(path, 'utf8');
    } catch (error) {
      read = error.code;
    }
    writeFileSync(join(tmpdir(), 'mine'), 'x');
    if (request.method === 'DELETE') setTimeout(() => process.exit(1));
    return Response.json({ uid: process.getuid(), groups: process.getgroups(), home: homedir(), read });
  },
};
