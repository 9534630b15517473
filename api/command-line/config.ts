import { loadConfig } from '../../infra/config/load.ts';
import { printConfig } from '../../infra/config/print.ts';

/** `runlake config`: every setting, redacted, with the source of its value. Faults are listed all together. */
export function printConfiguration(): void {
  const loaded = loadConfig();
  console.log(printConfig(loaded));
  for (const variable of loaded.unknownVariables) console.error(`${variable} is no setting of Runlake: misspelt?`);
}
