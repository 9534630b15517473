import { configurationPage } from './configuration.ts';
import { errorsPage } from './errors.ts';
import { exportColumnsPage } from './export-columns.ts';
import { guaranteesPage } from './guarantees.ts';
import type { Page } from './markdown.ts';
import { metricsPage } from './metrics.ts';
import { agentOperationsPage, operationsPage } from './operations.ts';
import { permissionsPage } from './permissions.ts';
import { thirdPartyPage } from './third-party.ts';

/** Pages of `docs/reference` that are written by hand; `npm run docs` leaves them alone. */
export const handwrittenPages: readonly string[] = ['glossary.md'];

/** Every generated page of `docs/reference`, from the code. */
export async function referencePages(): Promise<Page[]> {
  return [
    configurationPage(),
    errorsPage(),
    operationsPage(),
    agentOperationsPage(),
    permissionsPage(),
    guaranteesPage(),
    exportColumnsPage(),
    await metricsPage(),
    thirdPartyPage(),
  ];
}
