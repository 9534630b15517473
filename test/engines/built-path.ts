import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const sourceFolders = ['api', 'infra', 'pipelines', 'schemas'];
const compiled = new RegExp(`^(${sourceFolders.join('|')})/.*\\.ts$`);

/** Returns the path of the compiled file for a source that a file in `folder` imports; undefined for anything else. */
export function builtPath(imported: string, folder: string): string | undefined {
  if (!imported.startsWith('.') || !folder.startsWith(root.slice(0, -1))) return undefined;
  const path = resolve(folder, imported).slice(root.length);
  return compiled.test(path) ? join(root, 'dist', path.replace(/\.ts$/, '.js')) : undefined;
}
