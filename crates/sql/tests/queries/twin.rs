//! Two sessions over the same rows: Mycelium's, and DataFusion's own over tables in memory, which is the oracle.

use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use mycelium_encoding::Schema;
use mycelium_engine::{Background, Database, Layout, LeveledOptions, Options, Policy, Table, TableOptions};
use mycelium_sql::{Session, datafusion};
use mycelium_vfs::MemoryDisk;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::runtime::Runtime;

pub(crate) struct Twin {
    pub(crate) database: Database,
    pub(crate) session: Session,
    pub(crate) runtime: Runtime,
    oracle: SessionContext,
}

/// What the files below level 0 hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Rows,
    Columns,
}

impl Form {
    pub(crate) const ALL: [Self; 2] = [Self::Rows, Self::Columns];
}

impl Twin {
    pub(crate) fn new() -> Self {
        let options = Options {
            disk: Arc::new(MemoryDisk::new()),
            background: Background::Manual,
            memory_budget: 1 << 20,
            ..Options::default()
        };
        let database = Database::open("db", options).expect("a new database");
        let session = Session::open(&database);
        let oracle = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3));
        Self { database, session, runtime: Runtime::new().expect("a runtime"), oracle }
    }

    /// A table of small files, in the levels below the first of rows or of columns.
    pub(crate) fn create(&self, name: &str, schema: &str, form: Form) -> Table {
        let schema = Schema::parse(schema).expect("a schema");
        let leveled = LeveledOptions { target_file_size: 1 << 19, ..LeveledOptions::default() };
        let policy = Policy::Leveled(leveled);
        let columns = (0..schema.columns().len()).filter(|&at| !schema.is_primary_key(at)).collect();
        let text = match form {
            Form::Rows => "L0 tiered: * packed\nL1 leveled: * packed",
            Form::Columns => "L0 tiered: * packed\nL1 leveled: * columnar\nL2 leveled: * columnar",
        };
        let layout = Some(Layout::parse(text, &columns).expect("a layout"));
        let options = TableOptions { policy, layout, ..TableOptions::default() };
        self.database.create_typed_table(name, schema, options).expect("a new table")
    }

    /// Gives the oracle these rows under the name of a table.
    pub(crate) fn teach(&self, name: &str, batches: Vec<RecordBatch>) {
        let schema = batches[0].schema();
        let table = MemTable::try_new(schema, vec![batches]).expect("one schema");
        self.oracle.deregister_table(name).expect("in memory");
        self.oracle.register_table(name, Arc::new(table)).expect("in memory");
    }

    /// The same, with the rows written to a Parquet file and read from it.
    pub(crate) fn teach_parquet(&self, name: &str, batches: &[RecordBatch]) {
        let file = tempfile::tempfile().expect("a file");
        let handle = file.try_clone().expect("another handle");
        let mut writer = ArrowWriter::try_new(handle, batches[0].schema(), None).expect("a schema for Parquet");
        batches.iter().for_each(|batch| writer.write(batch).expect("written"));
        writer.close().expect("written");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
        self.teach(name, reader.expect("a Parquet file").map(|batch| batch.expect("rows")).collect());
    }

    /// Rows of Mycelium's answer.
    pub(crate) fn rows(&self, query: &str) -> Vec<String> {
        let answer = self.runtime.block_on(async { self.session.query(query).await?.collect().await });
        lines(&answer.unwrap_or_else(|error| panic!("{query}: {error}")))
    }

    /// Rows of DataFusion's answer.
    pub(crate) fn expected(&self, query: &str) -> Vec<String> {
        let expected = self.runtime.block_on(async { self.oracle.sql(query).await?.collect().await });
        lines(&expected.unwrap_or_else(|error| panic!("{query}: {error}")))
    }

    /// Compares both answers, in order if the query says one that leaves no ties; gives the number of rows.
    pub(crate) fn check(&self, query: &str, is_ordered: bool) -> usize {
        let mut expected = self.expected(query);
        let mut found = self.rows(query);
        if !is_ordered {
            expected.sort_unstable();
            found.sort_unstable();
        }
        let plan = || self.rows(&format!("EXPLAIN {query}")).join("\n");
        assert!(found == expected, "{query}\nfound: {found:#?}\nexpected: {expected:#?}\n{}", plan());
        found.len()
    }

    /// The physical plan, as text.
    pub(crate) fn plan(&self, query: &str) -> String {
        self.rows(&format!("EXPLAIN {query}")).join("\n")
    }
}

/// A line per row.
pub(crate) fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("null");
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>().expect("printable");
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            lines.push(cells.join(" | "));
        }
    }
    lines
}
