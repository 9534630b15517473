import { fault } from '../errors/runlake-error.ts';
import type { Tools } from './tools.ts';

const oldest = 17;
const install = 'a Java runtime 17 or newer, as openjdk-17-jre-headless';

/** Path of `java`. @throws STACK_TOOL_MISSING where there is none, or it is too old. */
export async function findJava(part: string, tools: Tools): Promise<string> {
  const java = tools.need(part, ['java'], install);
  const said = await tools.run(part, java, ['-version'], '/');
  const [, major = '0'] = /version "(\d+)/.exec(said) ?? [];
  if (Number(major) < oldest) throw fault('STACK_TOOL_MISSING', { part, program: `java ${oldest}`, install });
  return java;
}
