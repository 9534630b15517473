/** Loaded before the program in child processes of suites: resolves imports of sources to their compiled files. */
import { type ResolveHook, register } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { builtPath } from './built-path.ts';

export const resolve: ResolveHook = (imported, context, next) => {
  const folder = context.parentURL?.startsWith('file:') ? dirname(fileURLToPath(context.parentURL)) : '';
  const built = builtPath(imported, folder);
  return next(built === undefined ? imported : pathToFileURL(built).href, context);
};

if (isMainThread) register(import.meta.url);
