/**
 * Preloaded (`--import`) by worker processes of TypeScript projects. The main thread of the worker installs the
 * TypeScript loader later, so that its own modules are imported without one. Threads and processes that graph code
 * starts inherit the option and need it at once.
 */
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { readTypescript } from './read-typescript.ts';

const worker = fileURLToPath(new URL('./worker-process.js', import.meta.url));
if (!isMainThread || process.argv[1] !== worker) await readTypescript();
