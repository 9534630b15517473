import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Tools } from './tools.ts';

const minVersion = 17;
const install = 'a Java runtime 17 or newer, as openjdk-17-jre-headless';

/** Returns the path of `java`. @throws STACK_TOOL_MISSING if it is missing or too old. */
export async function findJava(part: string, tools: Tools): Promise<string> {
  const java = tools.requireProgram(part, ['java'], install);
  const output = await tools.run(part, java, ['-version'], '/');
  const [, major = '0'] = /version "(\d+)/.exec(output) ?? [];
  if (Number(major) < minVersion)
    throw runlakeError('STACK_TOOL_MISSING', { part, program: `java ${minVersion}`, install });
  return java;
}
