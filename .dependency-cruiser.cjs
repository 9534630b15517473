/** Imports go one way: api → pipelines → infra → schemas. */
const oneWay = (from, to) => ({
  name: `${from}-is-below`,
  severity: 'error',
  comment: `${from}/ must not import from ${to.join('/, ')}/`,
  from: { path: `^${from}/` },
  to: { path: `^(${to.join('|')})/` },
});

/** The server and the processes of graphs share only the messages between them. */
const acrossThePipe = (from, to) => ({
  name: `workers-${from}-does-not-import-${to}`,
  severity: 'error',
  from: { path: `^pipelines/agents/workers/${from}/` },
  to: { path: `^pipelines/agents/workers/${to}/` },
});

module.exports = {
  forbidden: [
    oneWay('schemas', ['infra', 'pipelines', 'api', 'web', 'bench', 'test']),
    oneWay('infra', ['pipelines', 'api', 'web', 'bench', 'test']),
    oneWay('pipelines', ['api', 'web', 'bench', 'test']),
    oneWay('api', ['web', 'bench', 'test']),
    oneWay('web/src', ['schemas', 'infra', 'pipelines', 'api', 'bench', 'test']),
    {
      name: 'no-cycles',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    { name: 'no-unresolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'no-dev-packages',
      severity: 'error',
      comment: 'what runs in production must be a dependency',
      // Programs of the build are no part of what is built.
      from: { path: '^(schemas|infra|pipelines|api)/', pathNot: '^infra/build/[^/]+\\.mjs$' },
      to: {
        dependencyTypes: ['npm-dev'],
        dependencyTypesNot: ['type-only'],
        pathNot: ['\\.d\\.ts$', 'node_modules/@types/'],
      },
    },
    acrossThePipe('front', 'child'),
    acrossThePipe('child', 'front'),
    {
      name: 'kafkajs-stays-in-its-folder',
      severity: 'error',
      from: { pathNot: '^infra/event-log/kafka/' },
      to: { path: 'node_modules/(kafkajs|@kafkajs)/' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    parser: 'tsc',
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'types'] },
  },
};
