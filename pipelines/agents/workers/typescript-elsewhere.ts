/**
 * Among the options of a worker process whose project is TypeScript. The process itself reads that later, once it has imported itself
 * without a loader in between; what graph code starts has these options, too, and needs it at once.
 */
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { readTypescript } from './read-typescript.ts';

const worker = fileURLToPath(new URL('./worker-process.js', import.meta.url));
if (!isMainThread || process.argv[1] !== worker) await readTypescript();
