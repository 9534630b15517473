import { configurationPage } from './configuration.ts';
import { errorsPage } from './errors.ts';
import { exportColumnsPage } from './export-columns.ts';
import { guaranteesPage } from './guarantees.ts';
import type { Page } from './markdown.ts';
import { metricsPage } from './metrics.ts';
import { notBuiltPage } from './not-built.ts';
import { agentOperationsPage, operationsPage } from './operations.ts';
import { permissionsPage } from './permissions.ts';
import { thirdPartyPage } from './third-party.ts';
import { toolsPage } from './tools.ts';

/** Handwritten pages of `docs/reference`; `npm run docs` does not change them. */
export const handwrittenPages: readonly string[] = ['glossary.md'];

/** Generates every page of `docs/reference` that is not handwritten. */
export async function referencePages(): Promise<Page[]> {
  return [
    configurationPage(),
    errorsPage(),
    operationsPage(),
    notBuiltPage(),
    agentOperationsPage(),
    permissionsPage(),
    guaranteesPage(),
    exportColumnsPage(),
    await metricsPage(),
    toolsPage(),
    thirdPartyPage(),
  ];
}
