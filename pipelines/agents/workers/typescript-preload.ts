/**
 * Worker processes of TypeScript projects preload this module (`--import`). Threads and processes that graph code
 * starts inherit the option, and the module installs the TypeScript loader in them at once. The main thread of the
 * worker installs the loader later, so that its own modules are imported without it.
 */
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { readTypescript } from './read-typescript.ts';

const workerPath = fileURLToPath(new URL('./worker-process.js', import.meta.url));
if (!isMainThread || process.argv[1] !== workerPath) await readTypescript();
