import { readFileSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';

/** Returns the user id, the groups, and the content of the file that the path names or the error code of reading it. */
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
