/**
 * A module that worker processes of TypeScript projects preload (`--import`). Threads and processes that graph code
 * starts inherit this option, and the module installs the TypeScript loader in them at once. In the main thread of the
 * worker the loader is installed later, so that the worker's own modules are imported without it.
 */
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { installTypescriptLoader } from '../read-typescript.ts';

const workerPath = fileURLToPath(new URL('./worker-process.js', import.meta.url));
if (!isMainThread || process.argv[1] !== workerPath) await installTypescriptLoader();
