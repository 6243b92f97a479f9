//! The straight computation of every answer over the data, which the demo's answers must equal.
//!
//! It knows nothing of the stream or of tables: each answer is one pass over all flights, deciding from a flight's
//! instants what was known.

use std::collections::BTreeMap;

use super::answers::{
    Answers, Content, ContentHash, Mean, OriginHour, Route, Totals, WINDOW, one_flight, one_route, one_tailnum,
    rank_routes,
};
use super::event_time::EventTime;
use super::flight::Flight;

/// All flights, in key order.
pub(crate) struct Oracle {
    flights: Vec<Flight>,
}

impl Oracle {
    /// An oracle over the data.
    pub(crate) fn new(flights: &[Flight]) -> Self {
        let mut flights = flights.to_vec();
        flights.sort_by_key(|flight| flight.0.key);
        Self { flights }
    }

    /// The answers at an instant, the changes of that minute included.
    pub(crate) fn answers(&self, at: EventTime) -> Answers {
        let known = |time: Option<EventTime>| time.is_some_and(|time| time <= at);
        let recent = |time: Option<EventTime>| time.is_some_and(|time| time <= at && time > at - WINDOW);
        let mut totals = Totals::default();
        let mut in_the_air = Vec::new();
        let mut departures = BTreeMap::<OriginHour, Mean>::new();
        let mut routes = BTreeMap::<Route, Mean>::new();
        let mut of_route = Mean::default();
        for flight in &self.flights {
            let row = &flight.0;
            let Some(known_row) = flight.row_at(at) else { continue };
            totals.add(&known_row);
            if recent(flight.departed_at()) {
                if !known(flight.arrived_at()) {
                    in_the_air.push(row.key);
                }
                if let Some(delay) = row.dep_delay {
                    departures.entry(OriginHour { origin: row.key.origin, hour: row.hour }).or_default().add(delay);
                }
            }
            if let (true, Some(delay)) = (known(flight.arrived_at()), row.arr_delay) {
                let route = Route { origin: row.key.origin, dest: row.dest };
                routes.entry(route).or_default().add(delay);
                if route == one_route() {
                    of_route.add(delay);
                }
            }
        }
        let rows = |keep: &dyn Fn(&Flight) -> bool| {
            self.flights.iter().filter(|flight| keep(flight)).filter_map(|flight| flight.row_at(at)).collect::<Vec<_>>()
        };
        Answers {
            at,
            totals,
            in_the_air,
            departures: departures.into_iter().collect(),
            worst_routes: rank_routes(routes),
            one_flight: rows(&|flight| flight.0.key == one_flight()).into_iter().next(),
            one_aircraft: rows(&|flight| flight.0.tailnum == Some(one_tailnum())),
            one_route: of_route,
        }
    }

    /// The content of the table at an instant.
    pub(crate) fn content(&self, at: EventTime) -> Content {
        let mut hash = ContentHash::default();
        for row in self.flights.iter().filter_map(|flight| flight.row_at(at)) {
            hash.add(&row);
        }
        hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::snapshot_times;
    use super::super::stream::{operations, test_flights};
    use super::*;

    /// Figures of a separate computation (Python, exact fractions) over the same file.
    #[test]
    fn answers_equal_a_separate_computation() {
        let oracle = Oracle::new(test_flights());
        let [(_, july), (_, december)] = snapshot_times();
        let after = EventTime::utc(2014, 1, 3, 0, 0);
        let totals = |flights, departed, arrived, cancelled, departure_delay_minutes, arrival_delay_minutes| Totals {
            flights,
            departed,
            arrived,
            cancelled,
            departure_delay_minutes,
            arrival_delay_minutes,
        };
        let expected = [
            (july, totals(179_683, 174_158, 173_723, 5_357, 2_537_100, 1_548_294), 150, (54, 11_314, 999), 417),
            (december, totals(322_031, 313_849, 313_273, 8_004, 3_898_012, 2_064_990), 136, (51, 17_336, 534), 575),
            (after, totals(336_776, 328_521, 328_063, 8_255, 4_152_200, 2_257_174), 0, (0, 0, 0), 575),
        ];
        let routes = [
            [("EWR-TYS", 8_375, 167), ("EWR-GRR", 10_587, 388)],
            [("EWR-TYS", 11_932, 298), ("EWR-DCA", 31_724, 1_527)],
            [("EWR-TYS", 12_880, 313), ("EWR-DCA", 33_399, 1_567)],
        ];
        for ((at, totals, in_the_air, departures, one_aircraft), worst) in expected.into_iter().zip(routes) {
            let answers = oracle.answers(at);
            assert_eq!(answers.totals, totals, "{at}");
            assert_eq!(answers.in_the_air.len(), in_the_air, "{at}");
            let sum = answers.departures.iter().map(|(_, mean)| mean.sum).sum::<i64>();
            let count = answers.departures.iter().map(|(_, mean)| mean.count).sum::<u64>();
            assert_eq!((answers.departures.len(), sum, count), departures, "{at}");
            for ((route, mean), expected) in [answers.worst_routes[0], answers.worst_routes[9]].iter().zip(worst) {
                assert_eq!((route.to_string().as_str(), mean.sum, mean.count), expected, "{at}");
            }
            assert_eq!(answers.one_flight.and_then(|row| row.dep_delay), Some(1301));
            assert_eq!(answers.one_aircraft.len(), one_aircraft);
            assert_eq!((one_route(), answers.one_route), answers.worst_routes[0], "the worst at any time");
            assert_eq!(answers.agreement(&oracle.answers(at)), [true; 7]);
            assert_eq!(oracle.content(at).rows, totals.flights);
        }
        assert_ne!(oracle.content(july).hash, oracle.content(july - 1).hash);
        assert!(oracle.answers(july - 1).agreement(&oracle.answers(july)).contains(&false));
    }

    /// What the stream writes up to an instant is what the oracle says is known at it.
    #[test]
    fn replaying_the_stream_gives_the_oracles_content() {
        use super::super::stream::Change;
        let flights = test_flights();
        let oracle = Oracle::new(flights);
        let mut table = BTreeMap::new();
        let mut stops = snapshot_times().map(|(_, at)| at).into_iter().chain([EventTime::utc(2014, 1, 3, 0, 0)]);
        let mut stop = stops.next();
        let check = |table: &BTreeMap<_, _>, at| {
            let mut hash = ContentHash::default();
            table.values().for_each(|row| hash.add(row));
            assert_eq!(hash.finish(), oracle.content(at), "{at}");
        };
        for operation in operations(flights) {
            while let Some(at) = stop.filter(|at| operation.time() > *at) {
                check(&table, at);
                stop = stops.next();
            }
            let flight = &flights[operation.flight()];
            let row = table.entry(flight.0.key).or_insert_with(|| flight.schedule());
            match operation.change() {
                Change::Insert => {}
                Change::Departure => (row.dep_time, row.dep_delay) = (flight.0.dep_time, flight.0.dep_delay),
                Change::Arrival => {
                    (row.arr_time, row.arr_delay, row.air_time) =
                        (flight.0.arr_time, flight.0.arr_delay, flight.0.air_time);
                }
                Change::Cancel => row.cancelled = true,
            }
        }
        stop.into_iter().chain(stops).for_each(|at| check(&table, at));
    }
}
