import { join } from 'node:path';
import { mavenDependencyPlugin } from './pins.ts';
import type { Tools } from './tools.ts';

const install = 'Maven 3.8 or newer, as the package maven';

/**
 * Downloads files into `<draft>/files` with a goal of Maven's dependency plugin.
 * @throws STACK_TOOL_MISSING, STACK_DOWNLOAD_FAILED
 */
export async function downloadWithMaven(
  title: string,
  tools: Tools,
  draft: string,
  { goal, args }: { readonly goal: 'copy' | 'copy-dependencies'; readonly args: readonly string[] },
): Promise<void> {
  const maven = tools.requireProgram(title, ['mvn'], install);
  tools.say(`${title}: downloading`);
  const plugin = `org.apache.maven.plugins:maven-dependency-plugin:${mavenDependencyPlugin}:${goal}`;
  await tools.run(title, maven, ['-q', '-B', plugin, ...args, `-DoutputDirectory=${join(draft, 'files')}`], draft);
}
