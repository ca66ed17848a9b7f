package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;

/** One kind of operation: it decides, and what it throws is the error of the whole request. */
@FunctionalInterface
interface Operation {
    ControllerResult<?> decide(World world, JsonNode arguments) throws Exception;
}
