import { createRequire } from 'node:module';
import { runlakeError } from '../../errors/runlake-error.ts';

/**
 * Returns the path of the engine's shared library in the npm package of this platform, without loading it.
 *
 * @throws ENGINE_PACKAGE_MISSING if an optional dependency is not installed.
 */
export async function findLibrary(): Promise<string> {
  const missing = (name: string, cause?: unknown) =>
    runlakeError('ENGINE_PACKAGE_MISSING', { package: name, variable: 'RUNLAKE_CLICKHOUSE_URL' }, { cause });
  try {
    createRequire(import.meta.url).resolve('ffi-rs');
  } catch (error) {
    throw missing('ffi-rs', error);
  }
  const chdb = await import('chdb/libchdb').catch((error: unknown) => {
    throw missing('chdb', error);
  });
  const path = chdb.tryResolveLibchdb()?.path;
  if (path === undefined) throw missing(`@chdb/lib-${process.platform}-${process.arch}`);
  return path;
}
