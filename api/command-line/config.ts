import { loadConfig } from '../../infra/config/load.ts';
import { printConfig } from '../../infra/config/print.ts';

/**
 * `runlake config`: prints every setting, redacted, with the source of its value. All invalid settings are reported together.
 */
export function printConfiguration(): void {
  console.log(printConfig(loadConfig()));
}
